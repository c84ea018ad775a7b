"""Texts of an experiment's page: the same problems at the start and at the end of every arm, and rollouts."""

from collections.abc import Sequence
from typing import NamedTuple

from cooper_rl.comparison.arms import ARMS
from cooper_rl.comparison.files import Files
from cooper_rl.comparison.summary import ArmRun
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


class Texts(NamedTuple):
    """The contents of both sections."""

    pairs: list[BeforeAfter]
    said: str
    """Counts of all problems by what changed, and by whom."""
    rollouts: list[Rollout]
    num_rollouts: int
    """All that the page chose from."""


def read_texts(files: Files, runs: Sequence[ArmRun]) -> Texts:
    """Texts of the arms; of the ablations where no arm ran.

    The arm `cooper`, else the first one, says which problems changed. Problems are shown of one seed,
    rollouts of all seeds.

    Args:
        files: Of the starting point and of every run.
        runs: All runs; at least one.

    Raises:
        DataError: a file is missing or malformed.
    """
    shown = [run for run in runs if run.arm in ARMS] or list(runs)
    start = read_records(files.start.completions, EvaluatedCompletion)
    written = {(run.arm, run.seed): run.end.completions for run in files.runs}
    ends = {
        (run.arm, run.seed): read_records(written[run.arm, run.seed], EvaluatedCompletion) for run in shown
    }
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


def _of_run(run: ArmRun, rows: Sequence[Rollout], *, when: str) -> list[Rollout]:
    return [row._replace(when=when, problem_id=f"seed {run.seed}, {row.problem_id}") for row in rows]
