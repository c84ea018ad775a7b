"""Time of a co-training step whose rollouts are drawn ahead, beside its bound.

    OMP_NUM_THREADS=1 python -m benchmarks.async_step --models M --verify-rm V --problems P

M, V and P are what `prepare-models`, `train-verify-rm` and `collect-problems` wrote with the laptop preset.
The product's own step and models, with the engine in a process of its own (`engine.process=own`). A schedule
is `cooper.max_rollout_staleness`: with 0 the trainer waits while the engine draws, and the engine while the
trainer updates; with 1 both work at once. Schedules are taken in turn, each from the same start, so that what
else the machine does falls on both; the first two steps warm up and are not counted.

The bound of staleness 1 is max(drawing, updating) of staleness 0: no schedule of one engine and one trainer
is faster. `handing over` is the time for which the trainer is held up by giving the engine its weights.
"""

import argparse
import logging
import os
import statistics
import sys
import time
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch

from cooper_rl.config.load import load
from cooper_rl.engines.base import Engine
from cooper_rl.records.files import read_records
from cooper_rl.run.build import SideData, make_trainer
from cooper_rl.run.plan import Inputs, starting_state
from cooper_rl.schema.data import Problem
from cooper_rl.training.step import run_step, step_problems

NUM_WARM_UP = 2


class Measured(NamedTuple):
    """One schedule, once: medians over its steps, in seconds."""

    step: float
    waiting: float
    """For rollouts."""
    handing_over: float

    @property
    def updating(self) -> float:
        """The rest of the step: rewards, both updates, weights."""
        return self.step - self.waiting


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name in ("--models", "--verify-rm", "--problems"):
        parser.add_argument(name, type=Path, required=True)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    rounds: list[tuple[Measured, Measured]] = []
    for number in range(options.repeats):
        rounds.append((measure(0, options), measure(1, options)))
        turns, ahead = rounds[-1]
        say(
            f"round {number + 1}: {turns.step:.2f} and {ahead.step:.2f} s/step, load {os.getloadavg()[0]:.1f}"
        )
    say("| staleness | s/step | waiting for rollouts | rewards and updates | handing over |")
    say("|---|---|---|---|---|")
    for staleness, found in enumerate(zip(*rounds, strict=True)):
        say(
            f"| {staleness} | {statistics.median(each.step for each in found):.2f} | "
            f"{statistics.median(each.waiting for each in found):.2f} | "
            f"{statistics.median(each.updating for each in found):.2f} | "
            f"{1000 * statistics.median(each.handing_over for each in found):.0f} ms |"
        )
    gains = [turns.step / ahead.step for turns, ahead in rounds]
    bounds = [turns.step / max(turns.waiting, turns.updating) for turns, _ in rounds]
    for name, ratios in (("gain", gains), ("bound of the gain", bounds)):
        say(f"{name}: {statistics.median(ratios):.2f}x ({min(ratios):.2f} to {max(ratios):.2f})")
    return 0


def measure(staleness: int, options: argparse.Namespace) -> Measured:
    """The steps of one schedule from the start."""
    values = [f"cooper.max_rollout_staleness={staleness}", "cooper.policy.max_importance_weight=2.0"]
    config = load("laptop", [*values, "engine.process=own", "cooper.monitor=null", *options.set])
    problems = read_records(options.problems, Problem)
    with ExitStack() as stack:
        inputs = Inputs(options.models, options.verify_rm, options.problems, Path(), None, {})
        state = starting_state(config, inputs, None)
        data = SideData((), (), ())
        trainer = make_trainer(config, state, problems, data, stack, models=options.models, place="the start")
        engine = Timed(trainer.engine)
        trainer = replace(trainer, engine=engine)
        steps: list[float] = []
        waits: list[float] = []
        for step in range(1, NUM_WARM_UP + options.steps + 1):
            batch, *ahead = (
                step_problems(problems, number, count=config.cooper.problems_per_step, seed=trainer.seed)
                for number in range(step, step + staleness + 1)
            )
            started = time.perf_counter()
            metrics = run_step(trainer, step, batch, ahead=ahead).metrics
            steps.append(time.perf_counter() - started)
            waits.append(metrics.seconds["rollout"])
    counted = slice(NUM_WARM_UP, None)
    return Measured(*(statistics.median(each[counted]) for each in (steps, waits, engine.handing_over)))


class Timed:
    """The engine, with the time that each of its weights took to hand over."""

    def __init__(self, engine: Engine) -> None:
        self.handing_over: list[float] = []
        self._engine = engine
        self.generate, self.sleep, self.close = engine.generate, engine.sleep, engine.close
        self.begin = getattr(engine, "begin")  # noqa: B009 a separate engine has it

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        """See `Engine.load_weights`."""
        started = time.perf_counter()
        self._engine.load_weights(weights)
        self.handing_over.append(time.perf_counter() - started)


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
