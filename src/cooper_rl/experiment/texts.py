"""Texts of an experiment's page: the same problems at the start and at the end of every arm, and rollouts."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from cooper_rl.experiment.arms import ARMS
from cooper_rl.experiment.jobs import ARM, START, outputs
from cooper_rl.experiment.summary import ArmRun
from cooper_rl.records.files import read_records
from cooper_rl.report.samples import (
    BeforeAfter,
    Rollout,
    before_after,
    choose_rollouts,
    from_evaluation,
    from_training,
)
from cooper_rl.schema.data import EvaluatedCompletion
from cooper_rl.schema.stages import Output


class Texts(NamedTuple):
    """The contents of both sections."""

    pairs: list[BeforeAfter]
    said: str
    """Counts of all problems by what changed, and by whom."""
    rollouts: list[Rollout]
    num_rollouts: int
    """All that the page chose from."""


def read_texts(output: Path, runs: Sequence[ArmRun]) -> Texts:
    """Texts of the arms; of the ablations where no arm ran.

    The arm `cooper`, else the first one, says which problems changed. Problems are shown of one seed,
    rollouts of all seeds.

    Args:
        output: Folder of the experiment.
        runs: All runs; at least one.

    Raises:
        DataError: a file is missing or malformed.
    """
    shown = [run for run in runs if run.arm in ARMS] or list(runs)
    start = read_records(
        outputs(START, output / "start")[Output("evaluate_policy_0", "completions")], EvaluatedCompletion
    )
    ends = {(run.arm, run.seed): _read_end(output, run) for run in shown}
    seed = shown[0].seed
    arms = sorted((run.arm for run in shown if run.seed == seed), key=lambda arm: arm != "cooper")
    pairs, counted = before_after(start, {f"after, {arm}": ends[arm, seed] for arm in arms})
    rollouts = from_evaluation("start", start)
    for run in shown:
        rollouts += _of_run(run, from_training(run.paid), when=f"last step, {run.arm}")
        rollouts += _of_run(run, from_evaluation("", ends[run.arm, run.seed]), when=f"end, {run.arm}")
    return Texts(
        pairs, f"Changes are those of the arm {arms[0]} with seed {seed}. {counted}",
        choose_rollouts(rollouts), len(rollouts),
    )  # fmt: skip


def _read_end(output: Path, run: ArmRun) -> list[EvaluatedCompletion]:
    files = outputs(ARM, output / run.arm / f"seed-{run.seed}")
    return read_records(files[Output("evaluate_policy_1", "completions")], EvaluatedCompletion)


def _of_run(run: ArmRun, rows: Sequence[Rollout], *, when: str) -> list[Rollout]:
    return [row._replace(when=when, problem_id=f"seed {run.seed}, {row.problem_id}") for row in rows]
