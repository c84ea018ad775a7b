"""Stage: one iteration of co-training, many steps long (rows 6 to 13). The step is `training/step.py`.

A run that was stopped, in whatever way, continues from its own checkpoints when it is started again, and
its numbers are those of a run that was not stopped. Checkpoints are in the folder given, or below
`storage.uri`; then the folder holds a reference. With `launch.kind=trainjob` a job on other nodes trains, and
what it left in the store is read here.
"""

import logging
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import torch

from cooper_rl.checkpoints.manifest import METRICS
from cooper_rl.checkpoints.reference import (
    check_reference_folder,
    open_checkpoint,
    write_reference,
)
from cooper_rl.checkpoints.state import TrainingState, library_versions, read_metrics, read_state
from cooper_rl.checkpoints.store import CheckpointStore, Found
from cooper_rl.checkpoints.writer import CheckpointWriter
from cooper_rl.config.root import Config
from cooper_rl.distributed.open import open_ranks
from cooper_rl.distributed.ranks import ALONE, Ranks
from cooper_rl.errors import DataError
from cooper_rl.machine.device import pick_device
from cooper_rl.method.monitor import denied_alarms, first_alarm
from cooper_rl.method.questions import without_questions
from cooper_rl.models.policy import load_policy
from cooper_rl.models.verify_rm import load_verify_rm
from cooper_rl.records.files import check_unique, read_records, write_report
from cooper_rl.records.model_set import read_models
from cooper_rl.run.build import SideData, make_trainer, read_side_data
from cooper_rl.run.evaluator import make_evaluator
from cooper_rl.run.identity import run_identity
from cooper_rl.run.launching import train_in_job
from cooper_rl.run.loop import CoTraining, check_hacked
from cooper_rl.run.recorder import Books
from cooper_rl.run.stopping import StopRequest
from cooper_rl.run.tracker import Tracker
from cooper_rl.schema.data import CooperReport, PreferencePair, Problem
from cooper_rl.schema.paths import Input, OutputFile, OutputFolder
from cooper_rl.servers.open import check_fits
from cooper_rl.storage.models import at_hand
from cooper_rl.storage.open import open_store

logger = logging.getLogger(__name__)


def run(
    config: Config,
    *,
    models: Annotated[Path, Input("Folder of prepare_models: the starting policy, also the KL reference")],
    verify_rm: Annotated[Path, Input("Folder of train_verify_rm")],
    problems: Annotated[Path, Input("Problems to train on (JSONL or Parquet)")],
    checkpoint: Annotated[
        Path, OutputFolder("Folder for checkpoints; an unfinished iteration in it is continued")
    ],
    report: Annotated[Path, OutputFile("Where to write the report (JSON)")],
    start: Annotated[
        Path | None, Input("Checkpoint folder of the previous iteration; absent: start anew")
    ] = None,
    replay: Annotated[
        Path | None, Input("Labelled examples to replay (cooper.reward.num_replay_examples)")
    ] = None,
    examples: Annotated[
        Path | None, Input("Held-out labelled examples (cooper.gate, cooper.evaluate_every)")
    ] = None,
    held_out: Annotated[Path | None, Input("Held-out problems (cooper.evaluate_every)")] = None,
    test: Annotated[Path | None, Input("Labelled examples that VerifyRM is evaluated on later")] = None,
    attacks: Annotated[Path | None, Input("Texts of red_team (cooper.pairs.negatives.red_team)")] = None,
) -> CooperReport:
    """Train policy and VerifyRM together for `cooper.steps` steps.

    Problems with a question of `examples`, `held_out` or `test` are left out: pairs would teach VerifyRM what
    the gate and the evaluations ask.

    Raises:
        ConfigError: no `storage.run_key`, a folder that a reference would clear, checkpoints of a run of
            another configuration or other data, an option needs a file that was not given, or several
            processes without DeepSpeed.
        HackingError: the monitor raised the alarm, and its action is `stop`; what was done is saved.
        LaunchError: the TrainJob cannot be started or followed, or failed.
        DataError: no problems are left, duplicate ids, or no whole checkpoint where there must be one.
        ModelError: a model cannot be used.
        ServerError: the judge that is the reward cannot be used; what was done before is saved.
        StorageError: checkpoints cannot be stored or read; the last visible one stays.
        StoppedError: SIGTERM; what was done is saved.
        TrainingError: a score, loss or gradient is not finite; the last checkpoint stays.
    """
    started = time.monotonic()
    run_uri = config.storage.run_uri()
    if run_uri:
        check_reference_folder(checkpoint)
    side = {"replay": replay, "examples": examples, "held_out": held_out, "test": test, "attacks": attacks}
    files = {"problems": problems, **side}
    data = read_side_data(config, **side)
    rows = _read_problems(config, problems, data)
    is_job = config.launch.kind == "trainjob"

    with ExitStack() as stack:
        ranks = ALONE if is_job else stack.enter_context(open_ranks(config.distributed))
        stop = stack.enter_context(StopRequest(config.storage.grace_seconds))
        share = _Share(config, rows, data, models, verify_rm, ranks, stop)
        if not ranks.is_first:
            return _follow(share, stack)
        # A job fetches what it continues from itself: here manifests and the small files do.
        needed = () if is_job else ("",)
        opened = open_checkpoint(start, config.storage, starting_with=needed) if start else None
        begun = stack.enter_context(opened) if opened else None
        iteration = _open_iteration(share, begun, files, uri=run_uri, folder=checkpoint)
        checkpoints, last_step = iteration.checkpoints, iteration.last_step
        fetched = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cooper-rl-")))
        found = checkpoints.newest(fetched, last_step=0 if is_job else last_step)
        if found is not None and found.manifest.step >= last_step:
            logger.info("%s/%s: finished already, nothing is trained", checkpoints.uri, found.name)
            done = read_metrics(found.folder / METRICS)
            ranks.first(lambda: _Told(iteration.first_step, last_step, metrics=done))
        elif is_job:
            inputs = {"models": models, "verify_rm": verify_rm, "start": start, **files}
            found = train_in_job(
                config, inputs, checkpoints=checkpoints, folder=fetched, last_step=last_step, stop=stop
            )
        else:
            _lead(share, iteration, found, begun, stack, folder=checkpoint, place=str(start or verify_rm))
            found = checkpoints.published(fetched)
        metrics = read_metrics(found.folder / METRICS)
        check_hacked(config, metrics)
        if run_uri:
            write_reference(checkpoint, found, uri=checkpoints.uri)
    result = _summarise(metrics, first_step=iteration.first_step, seconds=time.monotonic() - started)
    write_report(report, result)
    return result


def _read_problems(config: Config, path: Path, data: SideData) -> list[Problem]:
    """Problems that are wired to the assistant and the judge that the run asks, and not evaluated on."""
    found = read_records(path, Problem)
    check_unique(found, field="id", path=path)
    rows = without_questions(found, data.evaluated)
    if len(rows) < len(found):
        logger.info(
            "%d of %d problems are left out: they are evaluated on", len(found) - len(rows), len(found)
        )
    if not rows:
        raise DataError(f"{path}: every problem has a question that is evaluated on; give other problems")
    if config.cooper.trains_verify_rm:
        check_fits(config.cooper.pairs.assistant, rows, key="cooper.pairs.assistant")
    if config.cooper.asks_judge:
        check_fits(config.cooper.judge, rows, key="cooper.judge")
    return rows


@dataclass(frozen=True)
class _Share:
    """What every process has before it knows where the iteration stands."""

    config: Config
    problems: Sequence[Problem]
    data: SideData
    models: Path
    verify_rm: Path
    ranks: Ranks
    stop: StopRequest

    def starting_state(self, found: Found | None, *, device: torch.device | None = None) -> TrainingState:
        """A checkpoint's state, or the starting models, where training goes on unless told a device."""
        device = device or pick_device()
        if found is not None:
            logger.info("continue from %s, step %d", found.name, found.manifest.step)
            if found.manifest.versions != library_versions():
                logger.warning(
                    "the checkpoint was written with %s and is continued with %s: the numbers may differ in "
                    "their last digits from those of an uninterrupted run",
                    found.manifest.versions,
                    library_versions(),
                )
            return read_state(found.folder, step=found.manifest.step, device=device)
        return TrainingState(
            step=0,
            policy=load_policy(at_hand(self.config.storage, read_models(self.models).policy), device=device),
            verify_rm=load_verify_rm(self.verify_rm, device=device),
            policy_optimizer={},
            verify_rm_optimizer={},
            metrics=[],
            pairs=[],
        )

    def train(
        self, state: TrainingState, last_step: int, stack: ExitStack, *, books: Books | None, place: str
    ) -> None:
        """All steps that are left."""
        trainer = make_trainer(
            self.config,
            state,
            self.problems,
            self.data,
            stack,
            models=self.models,
            place=place,
            ranks=self.ranks,
        )
        state.policy_optimizer, state.verify_rm_optimizer = {}, {}  # the optimisers have them now
        evaluator = None
        if self.config.cooper.evaluate_every is not None:
            evaluator = make_evaluator(
                self.config, self.data.held_out, self.data.examples, trainer.rule, ranks=self.ranks
            )
        training = CoTraining(
            config=self.config,
            trainer=trainer,
            state=state,
            problems=self.problems,
            evaluator=evaluator,
            stop=self.stop,
            books=books,
            ranks=self.ranks,
        )
        training.run(last_step)


class _Iteration(NamedTuple):
    """Which steps, and where their checkpoints are."""

    first_step: int
    last_step: int
    checkpoints: CheckpointStore


def _open_iteration(
    share: _Share, begun: Found | None, files: Mapping[str, Path | None], *, uri: str | None, folder: Path
) -> _Iteration:
    """The steps after those of the iteration before, of which `begun` is the last."""
    config = share.config
    first_step = begun.manifest.step + 1 if begun else 1
    identity = run_identity(
        config,
        models=share.models,
        verify_rm=share.verify_rm,
        files=files,
        start=begun.manifest if begun else None,
    )
    # Each iteration has a place of its own.
    store = open_store(config.storage, f"{uri}/from-{first_step:06d}" if uri else folder)
    checkpoints = CheckpointStore(store, identity=identity, retention=config.storage)
    return _Iteration(first_step, first_step + config.cooper.steps - 1, checkpoints)


def _lead(
    share: _Share,
    iteration: _Iteration,
    found: Found | None,
    begun: Found | None,
    stack: ExitStack,
    *,
    folder: Path,
    place: str,
) -> None:
    """The iteration on the first rank, which reads and writes its checkpoints."""
    checkpoints = iteration.checkpoints
    state = share.starting_state(found or begun)
    check_hacked(share.config, state.metrics)
    share.ranks.first(lambda: _Told(iteration.first_step, iteration.last_step, state.metrics, state.pairs))
    checkpoints.prepare()
    run_key = share.config.storage.run_key or "cooper-rl"
    books = Books(
        checkpoints,
        writer=stack.enter_context(CheckpointWriter(checkpoints, folder)),
        tracker=stack.enter_context(Tracker(share.config.tracker, run=run_key)),
        first=lambda: share.starting_state(begun, device=torch.device("cpu")),
    )
    share.train(state, iteration.last_step, stack, books=books, place=place)
    books.writer.finish()


class _Told(NamedTuple):
    """Where the iteration stands, as the first rank tells the others; weights follow elsewhere."""

    first_step: int
    last_step: int
    metrics: list[dict[str, float]]
    pairs: list[PreferencePair] | None = None
    """None: nothing is left to train."""


def _follow(share: _Share, stack: ExitStack) -> CooperReport:
    """The iteration on all ranks but the first: it trains, and reads and writes no checkpoint."""
    started = time.monotonic()
    told: Any = share.ranks.first(lambda: None)
    metrics = told.metrics
    if told.pairs is not None:
        state = share.starting_state(None)
        state.step = told.metrics[-1]["step"] if told.metrics else 0
        state.metrics, state.pairs = metrics, told.pairs
        share.train(state, told.last_step, stack, books=None, place="the first rank")
    return _summarise(metrics, first_step=told.first_step, seconds=time.monotonic() - started)


def _summarise(metrics: Sequence[dict[str, float]], *, first_step: int, seconds: float) -> CooperReport:
    own = [row for row in metrics if row["step"] >= first_step]
    tail = own[-max(1, len(own) // 10) :]
    return CooperReport(
        first_step=first_step,
        last_step=int(own[-1]["step"]),
        verify_rm_reward=sum(row["rollout/verify_rm_reward"] for row in tail) / len(tail),
        rule_accuracy=sum(row["rollout/rule_accuracy"] for row in tail) / len(tail),
        num_pairs=sum(int(row.get("pairs/count", 0)) for row in own),
        num_skipped_reward_updates=sum(row.get("pairs/count") == 0 for row in own),
        num_rolled_back_reward_updates=sum(row.get("gate/rolled_back", 0) > 0 for row in own),
        first_alarm_step=first_alarm(own),
        denied_alarm_steps=denied_alarms(own),
        seconds=seconds,
    )
