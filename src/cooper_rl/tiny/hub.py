"""The laptop's model hub: trains policy, samplers and backbone from scratch, as Hugging Face folders.

Each model is trained by one thread, several at once in processes of their own, which uses two cores better
than two threads on matrices of this size. The policy takes longest and is trained in the calling process.
What a model becomes depends on the seed and its own settings only.
"""

import logging
import multiprocessing
import random
from collections.abc import Callable, Generator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import chain
from logging.handlers import QueueHandler, QueueListener
from pathlib import Path
from typing import Any

import torch

from cooper_rl.config.models import TinyBackbone, TinyModel, TinyModels
from cooper_rl.machine.workers import follow_parent
from cooper_rl.models.policy import save_folder
from cooper_rl.models.template import add_template, note_reading, open_template
from cooper_rl.randomness import derive_seed
from cooper_rl.schema.reports import ModelSet
from cooper_rl.tiny import program_texts
from cooper_rl.tiny.architecture import new_model
from cooper_rl.tiny.texts import STORY_TEXTS, Texts, story_texts, stream_batches
from cooper_rl.tiny.warm_up import warm_up

logger = logging.getLogger(__name__)


def choose_texts(domain: str, *, blind_share: float = 0.0) -> Texts:
    """The texts that a domain's laptop models learn from; `blind_share` is that of the problems."""
    return program_texts.TEXTS if domain == "programs" else story_texts(blind_share)


def train_tiny_models(
    tiny: TinyModels, folder: Path, *, seed: int, num_processes: int, texts: Texts = STORY_TEXTS
) -> ModelSet:
    """Train every model into `folder/<name>`; paths in the result are relative to the folder.

    With one process, everything is trained in this one.
    """
    jobs: list[Callable[[], None]] = [
        partial(
            train_policy, tiny.policy, folder, name="policy", seed=seed, texts=texts, snapshots=tiny.snapshots
        ),
        partial(train_backbone, tiny.backbone, folder, seed=seed, texts=texts),
    ]
    jobs += [
        partial(train_policy, size, folder, name=name, seed=seed, texts=texts)
        for name, size in tiny.samplers.items()
    ]
    if num_processes == 1:
        for job in jobs:
            job()
    else:
        policy, *others = jobs
        run_in_processes(others, min(num_processes - 1, len(others)), meanwhile=policy)
    names = ("policy", *tiny.snapshots, *tiny.samplers)
    return ModelSet(policy="policy", samplers={name: name for name in names}, backbone="backbone")


def train_policy(
    size: TinyModel,
    folder: Path,
    *,
    name: str,
    seed: int,
    texts: Texts = STORY_TEXTS,
    snapshots: dict[str, float] | None = None,
) -> None:
    """Train a model that answers prompts; write it, and its snapshots on the way, to `folder/<name>`."""
    tokenizer = texts.build_tokenizer()
    own_seed = derive_seed(seed, "tiny_model", name)
    model = new_model(size, tokenizer, seed=own_seed)
    rng = random.Random(own_seed)
    batches = stream_batches(
        lambda count: texts.policy_examples(count, tokenizer, rng),
        size.num_updates,
        batch_size=size.batch_size,
        rng=rng,
    )
    due = {max(1, round(share * size.num_updates)): kept for kept, share in (snapshots or {}).items()}

    def keep(num_done: int) -> None:
        if num_done in due:
            save_folder(model, tokenizer, folder / due[num_done])

    warm_up(model, batches, num_updates=size.num_updates, lr=size.lr, name=name, after_update=keep)
    save_folder(model, tokenizer, folder / name)


def train_backbone(size: TinyBackbone, folder: Path, *, seed: int, texts: Texts = STORY_TEXTS) -> None:
    """Train a model that says whether a completion's answer matches the reference answer."""
    tokenizer = texts.build_tokenizer()
    own_seed = derive_seed(seed, "tiny_model", "backbone")
    model = new_model(size, tokenizer, seed=own_seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(own_seed)
        # The world's words are added tokens.
        add_template(model, tokenizer, reads_added_words=True, is_random=True)
    note_reading(model, domain=texts.domain, reference_last=False)
    template = open_template(model, tokenizer, "backbone")
    rng = random.Random(own_seed)
    # Bare statements are a third as long as whole solutions, so twice as many make a batch.
    matching = stream_batches(
        lambda count: texts.matching_examples(count, tokenizer, rng, template=template),
        size.num_matching_updates,
        batch_size=2 * size.batch_size,
        rng=rng,
    )
    whole = stream_batches(
        lambda count: texts.verdict_examples(count, tokenizer, rng, template=template),
        size.num_updates,
        batch_size=size.batch_size,
        rng=rng,
    )
    num_updates = size.num_matching_updates + size.num_updates
    warm_up(model, chain(matching, whole), num_updates=num_updates, lr=size.lr, name="backbone")
    save_folder(model, tokenizer, folder / "backbone")


def run_in_processes(
    jobs: list[Callable[[], None]], num_processes: int, *, meanwhile: Callable[[], None] | None = None
) -> None:
    """Run every job in worker processes, and one in this process; log records are handled here."""
    # spawn: a fork of a process in which torch has started threads can hang in a lock that one of them
    # held.
    context = multiprocessing.get_context("spawn")
    records = context.Queue()
    listener = QueueListener(records, _Forward())
    pool = ProcessPoolExecutor(
        num_processes,
        mp_context=context,
        initializer=_start_worker,
        initargs=(records, logger.getEffectiveLevel()),
    )
    # Ours alone are ended on an error; a caller may have workers of its own.
    others = multiprocessing.active_children()
    listener.start()
    try:
        futures = [pool.submit(job) for job in jobs]
        if meanwhile is not None:
            with _one_thread():
                meanwhile()
        for future in futures:
            future.result()
    except BaseException:
        for worker in multiprocessing.active_children():
            if worker not in others:
                worker.terminate()
        pool.shutdown(cancel_futures=True)
        # The listener goes with this process: stopping it takes a lock that a worker may have died with.
        raise
    pool.shutdown()
    listener.stop()


@contextmanager
def _one_thread() -> Generator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class _Forward(logging.Handler):
    """Hands a worker's record to this process's logger of the same name."""

    def emit(self, record: logging.LogRecord) -> None:
        logging.getLogger(record.name).handle(record)


def _start_worker(records: Any, level: int) -> None:
    follow_parent()
    # Two processes on two cores: more threads in each would wait for each other.
    torch.set_num_threads(1)
    root = logging.getLogger()
    root.setLevel(level)
    root.addHandler(QueueHandler(records))
