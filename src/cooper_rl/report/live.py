"""The page of a run that goes on, or of all runs of an experiment: whatever their files say by now.

Made from live files (`records/live.py`), evaluations that have ended, and the newest checkpoint's rollouts.
A file that is half written, damaged or of another version is left out: the run is what matters, not its page.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from cooper_rl.checkpoints.logs import LOGS, ROLLOUTS
from cooper_rl.errors import ConfigError, CooperError
from cooper_rl.records.files import read_records
from cooper_rl.records.live import SUFFIX, LiveRun, files_named, find_live
from cooper_rl.report.figure import COLORS, Figure
from cooper_rl.report.page import render, versions
from cooper_rl.report.plots import Arm, training_figures
from cooper_rl.report.provenance import describe
from cooper_rl.report.text import HeadlineRow, headline_rows
from cooper_rl.schema.data import RolloutSample
from cooper_rl.schema.reports import EvalReport

NUM_ROLLOUTS = 3


class Standing(NamedTuple):
    """The progress of one run."""

    name: str
    step: int
    last_step: int
    reward: float | None
    rule_accuracy: float | None
    updated: str


class Evaluations(NamedTuple):
    """Evaluations of one task, with the ones before it."""

    name: str
    points: list[EvalReport]
    rows: list[HeadlineRow]


def check_folder(folder: Path) -> None:
    """Refuse a folder that is not there, which would be waited for in vain.

    Raises:
        ConfigError: names it.
    """
    try:
        is_folder = folder.is_dir()
    except OSError as error:  # a name that no file system takes
        raise ConfigError(f"{folder}: no folder ({error.strerror}); give the --output of a run") from error
    if not is_folder:
        raise ConfigError(f"{folder}: no such folder; give the --output of a run or of an experiment")


def live_page(folder: Path, *, refresh_seconds: int | None = None) -> str | None:
    """The page; None where no run below the folder has begun to train.

    Args:
        folder: Of a run, of an experiment, or of a task `train-cooper`.
        refresh_seconds: The page asks its address again after so many; its figures are then drawn by its
            script alone. None: a file, with figures that need no script.
    """
    runs = find_live(folder)
    if not runs:
        return None
    evaluations = _evaluations(folder)
    starts = [part.points[0] for part in evaluations if part.points[0].step == 0]
    arms = [arm._replace(evaluations=starts[:1]) for arm in _arms(folder, runs)]
    newest = max(runs, key=lambda run: run.updated)
    shown = list(newest.header.settings.items())
    return render(
        "report/live.html.jinja",
        title=folder.resolve().name,
        refresh_seconds=refresh_seconds,
        standings=[_standing(folder, run) for run in runs],
        figures=_figures(arms),
        evaluations=evaluations,
        rollouts=_newest_rollouts(newest),
        origin=describe(shown, command=newest.header.command, metrics=newest.metrics),
        settings=shown,
        versions=versions(),
    )


def _figures(arms: Sequence[Arm]) -> list[Figure]:
    return training_figures(arms) if arms else []


def _arms(folder: Path, runs: Sequence[LiveRun]) -> list[Arm]:
    """One arm for the iterations of one run; lines of one colour each where there are more than two names."""
    found: dict[tuple[Path, str | None], list[LiveRun]] = {}
    for run in runs:
        found.setdefault((run.path.parent.parent, run.header.arm), []).append(run)
    names = [_name(folder, parts[0]) for parts in found.values()]
    kinds = list(dict.fromkeys(names))
    arms: list[Arm] = []
    for name, parts in zip(names, found.values(), strict=True):
        rows = {row.step: row for run in parts for row in run.metrics}
        color = COLORS[kinds.index(name) % len(COLORS)] if len(kinds) > 2 else None
        metrics = [rows[step] for step in sorted(rows)]
        if metrics:
            arms.append(Arm("" if len(kinds) == 1 else name, metrics, color=color))
    # First the run itself, of which some figures are alone.
    return sorted(arms, key=lambda arm: arm.name not in ("", "cooper"))


def _name(folder: Path, run: LiveRun) -> str:
    """The arm: as the run says, else the first folder below an experiment's, else `cooper`."""
    if run.header.arm:
        return run.header.arm
    parts = run.path.relative_to(folder).parts
    return parts[0] if len(parts) == 4 else "cooper"


def _standing(folder: Path, run: LiveRun) -> Standing:
    last = run.metrics[-1] if run.metrics else None
    place = run.path.relative_to(folder).as_posix().removesuffix(f"/checkpoint{SUFFIX}").removesuffix(SUFFIX)
    return Standing(
        name=f"{place}, {run.header.arm}" if run.header.arm else place,
        step=last.step if last else 0,
        last_step=run.header.last_step,
        reward=last.rollout.verify_rm_reward if last else None,
        rule_accuracy=last.rollout.rule_accuracy if last else None,
        updated=datetime.fromtimestamp(run.updated, UTC).strftime("%H:%M:%S UTC"),
    )


def _evaluations(folder: Path) -> list[Evaluations]:
    """The evaluations of every task, unless a later task has taken them over."""
    found: list[tuple[str, list[EvalReport]]] = []
    for path in files_named(folder, "evaluations", "evaluations.jsonl"):
        try:
            points = read_records(path, EvalReport)
        except CooperError:
            continue
        if points:
            found.append((path.parent.relative_to(folder).as_posix(), points))
    return [
        Evaluations(name, points, headline_rows(points))
        for name, points in found
        if not any(len(other) > len(points) and other[: len(points)] == points for _, other in found)
    ]


def _newest_rollouts(run: LiveRun) -> list[RolloutSample]:
    """The best paid ones of the last step before the newest checkpoint."""
    checkpoint = run.path.with_name(run.path.name.removesuffix(SUFFIX))
    try:
        pieces = sorted(checkpoint.glob(f"{LOGS}/*/{ROLLOUTS}"))
        rows = read_records(pieces[-1], RolloutSample) if pieces else []
    except (OSError, CooperError):
        return []
    return [row for row in rows if row.step == rows[-1].step][:NUM_ROLLOUTS]
