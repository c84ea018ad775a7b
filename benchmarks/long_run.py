"""What the bookkeeping of a step costs after 10, 1,000 and 10,000 steps: time, memory, checkpoint and log.

    python -m benchmarks.long_run --folder DIR

The loop, the monitor, the checkpoints and their store are the product's. Models are small, and steps are
synthetic: metrics, pairs and rollouts of 230 kB a step, and nothing is generated or trained. The pairs are
marked as canaries, which the leak guard leaves out: what it costs depends on its 256 pairs alone.
"""

import argparse
import logging
import random
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import torch

from benchmarks._step_setting import make_models, make_problems
from cooper_rl.checkpoints.identity import RunIdentity
from cooper_rl.checkpoints.logs import METRICS
from cooper_rl.checkpoints.state import TrainingState
from cooper_rl.checkpoints.store import CheckpointStore
from cooper_rl.checkpoints.writer import CheckpointWriter
from cooper_rl.config.load import load
from cooper_rl.models.policy import load_policy
from cooper_rl.models.verify_rm import load_verify_rm
from cooper_rl.records.step_metrics import read_metrics
from cooper_rl.run import loop
from cooper_rl.run.build import SideData, make_trainer
from cooper_rl.run.loop import CoTraining
from cooper_rl.run.recorder import Books
from cooper_rl.run.stopping import StopRequest
from cooper_rl.run.tracker import Tracker
from cooper_rl.schema.data import PreferencePair, Problem, RolloutSample
from cooper_rl.schema.step_metrics import RolloutMetrics, StepMetrics
from cooper_rl.storage.base import files_below
from cooper_rl.storage.local import LocalStore
from cooper_rl.training.step import StepResult, Trainer

NUM_METRICS = 50
NUM_PAIRS = 48
NUM_ROLLOUTS = 8
TEXT_CHARS = 2000
WINDOW = 100
"""Steps that a time is the mean of; the first mark has fewer."""


class Measured(NamedTuple):
    """At one number of steps."""

    seconds: float
    """Of wall-clock time a step, with its share of the checkpoints."""
    cpu_seconds: float
    memory_mb: float
    checkpoint_kb: float
    log_mb: float


def main() -> None:
    """Run to each mark and show what a step costs there."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--marks", type=int, nargs="+", default=[10, 1000, 10000])
    parser.add_argument("--every", type=int, default=20, help="steps between checkpoints")
    options = parser.parse_args()
    logging.basicConfig(level=logging.ERROR)
    torch.set_num_threads(1)
    options.hidden, options.layers, options.vocab, options.fixed = 64, 1, 0, False
    make_models(options.folder, options)
    problems = make_problems(16, 1)
    vars(loop)["run_step"] = synthetic_step
    say("| steps | ms a step | CPU ms a step | memory, MB | checkpoint, kB | log, MB |")
    say("|---|---|---|---|---|---|")
    with ExitStack() as stack:
        run, store = open_run(options, problems, stack)
        for mark in options.marks:
            found = measure(run, mark, options.folder / "run")
            say(
                f"| {mark:,} | {1e3 * found.seconds:.1f} | {1e3 * found.cpu_seconds:.1f} | "
                f"{found.memory_mb:.0f} | {found.checkpoint_kb:.0f} | {found.log_mb:.1f} |"
            )
        started = time.perf_counter()
        found = store.newest(options.folder / "fetched", last_step=10**9)
        assert found is not None
        say(f"found and verified again in {time.perf_counter() - started:.2f} s")
        steps = [row.step for row in read_metrics(*found.log[METRICS])]
        assert steps == list(range(1, options.marks[-1] + 1))


def open_run(
    options: argparse.Namespace, problems: Sequence[Problem], stack: ExitStack
) -> tuple[CoTraining, CheckpointStore]:
    """As `run/iteration.py` opens it, without an engine's work."""
    config = load("laptop", ["cooper.gate=null", f"cooper.checkpoint_every={options.every}"])
    cpu = torch.device("cpu")
    state = TrainingState(
        step=0, policy=load_policy(options.folder / "policy", device=cpu),
        verify_rm=load_verify_rm(options.folder / "verify_rm", device=cpu),
        policy_optimizer={}, verify_rm_optimizer={}, metrics=[], pairs=[],
    )  # fmt: skip
    trainer = make_trainer(
        config, state, problems, SideData((), (), ()), stack, models=options.folder, place="the start"
    )
    opened = (
        CheckpointStore(
            LocalStore(options.folder / "run"), identity=RunIdentity({}), retention=config.storage
        )
        for _ in range(2)
    )
    store, again = opened
    store.prepare()
    books = Books(
        store,
        writer=stack.enter_context(CheckpointWriter(store, options.folder / "run")),
        tracker=stack.enter_context(Tracker(None, run="benchmark")),
        first=lambda: state,
    )
    stop = stack.enter_context(StopRequest(60))
    run = CoTraining(
        config=config, trainer=trainer, state=state, problems=problems, evaluator=None, stop=stop, books=books
    )
    return run, again


def synthetic_step(trainer: Trainer, step: int, problems: Sequence[Problem], **_: Any) -> StepResult:
    """Numbers and texts of a step's usual size; the same for the same step."""
    rng = random.Random(step)
    others = {f"synthetic/{place}": rng.random() for place in range(NUM_METRICS)}
    rollout = RolloutMetrics(verify_rm_reward=rng.random(), rule_accuracy=rng.random())
    metrics = StepMetrics(step=step, rollout=rollout, others=others)
    text = "".join(rng.choices("0123456789 +-=abcdefgh.\n", k=TEXT_CHARS))

    def turned() -> str:
        place = rng.randrange(TEXT_CHARS)
        return text[place:] + text[:place]

    pairs = [
        PreferencePair(
            step=step, problem_id=str(place), question=f"question {place % 16}", reference_answer="1",
            positive=turned(), negative=turned(), source="canary",
        )
        for place in range(NUM_PAIRS)
    ]  # fmt: skip
    rollouts = [
        RolloutSample(
            step=step, problem_id=str(place), question=f"question {place}", reference_answer="1",
            completion=turned(), rule="correct", score=0.5, reward=0.5,
        )
        for place in range(NUM_ROLLOUTS)
    ]  # fmt: skip
    return StepResult(metrics, pairs, rollouts)


def measure(run: CoTraining, mark: int, folder: Path) -> Measured:
    """Go on to a number of steps; what the last ones cost."""
    start = max(run.state.step, mark - WINDOW)
    run.run(start)
    assert run.books is not None
    run.books.writer.finish()
    wall, cpu = time.perf_counter(), time.process_time()
    run.run(mark)
    run.books.writer.finish()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    newest = folder / (folder / "LATEST").read_text().strip()
    return Measured(
        seconds=wall / (mark - start),
        cpu_seconds=cpu / (mark - start),
        memory_mb=psutil.Process().memory_info().rss / 1e6,
        checkpoint_kb=size_of(newest) / 1e3,
        log_mb=size_of(folder / "logs") / 1e6,
    )


def size_of(folder: Path) -> int:
    return sum((folder / file).stat().st_size for file in files_below(folder))


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
