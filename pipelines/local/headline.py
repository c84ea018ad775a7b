"""The results of a local run in a few lines, read from the files in its folder.

Kubeflow gives a pipeline with an exit task no outputs of its own, so they are found by task and name. Tasks
that these lines need are never cached. The report has all results.
"""

import re
import shutil
from pathlib import Path
from typing import TypeVar

from cooper_rl.checkpoints.logs import LOGS, METRICS
from cooper_rl.checkpoints.reference import REFERENCE, CheckpointReference, newest_folder
from cooper_rl.comparison.summary import ArmSummary, ExperimentReport
from cooper_rl.errors import DataError
from cooper_rl.records.files import read_records, read_report
from cooper_rl.run.promotion import title
from cooper_rl.schema.reports import EvalReport, EvaluateVerifyRMReport, Interval, Report, RunReport
from cooper_rl.schema.runs import ChampionReport, PromoteReport

Rows = list[tuple[str, str]]
R = TypeVar("R", bound=Report)

PAGE, SUMMARY = "report.html", "summary.md"
"""Copies in the folder that the person named."""
SUMMARISING = ("report", "compare-arms", "summarise-run")
"""Tasks whose summary is shown, the first of those that ran."""
FROZEN = "VerifyRM, frozen"
PLAIN = "plain VerifyRM, frozen"
"""Rows' names for the arm whose VerifyRM never learns, by whether only Cooper's has decoys. The other arm is
Cooper."""


def headline(run: Path, output: Path) -> str:
    """Numbers and files of a finished run, in lines that a person reads last.

    Args:
        run: folder of the run, with one folder per task.
        output: folder that the person named; page and summary are copied there.
    """
    said = _say_promotion(run)
    if told := _read(run, "report", "report", RunReport):
        objection = told.promotion_objection
        said += f"\nIts promotion would be refused: {objection}\n" if objection else ""
    numbers = _say_numbers(run, told)
    return f"{numbers}{said}\n{_table(_find_files(run, output))}"


def _say_numbers(run: Path, told: RunReport | None) -> str:
    """Accuracy and reward of every arm; of a run without co-training, VerifyRM's accuracy."""
    evaluations = _last(run, "evaluate-policy", "evaluations")
    if told is not None and evaluations is not None:
        first, *_, last = read_records(evaluations, EvalReport)
        return (
            f"On {first.num_problems} held-out problems, step {first.step} -> {last.step}, with 95 % "
            f"intervals:\n\n{_table(_compare(first, last, told))}"
        )
    if compared := _read(run, "compare-arms", "report", ExperimentReport):
        rows = [(arm.arm, _say_arm(arm)) for arm in compared.arms]
        return (
            f"Accuracy on {compared.num_held_out} held-out problems after {compared.steps} steps, with 95 % "
            f"intervals:\n\n{_table(rows)}"
        )
    if scores := _read(run, "evaluate-verify-rm", "report", EvaluateVerifyRMReport):
        found = scores.overall
        accuracy = f"{_interval(found.accuracy)}  (majority {found.majority_accuracy:.3f})"
        return f"\n\n{_table([(f'VerifyRM accuracy, {found.num_examples} examples', accuracy)])}"
    return "\n"


def _say_arm(arm: ArmSummary) -> str:
    return f"{_change(arm.start_accuracy, arm.accuracy)}, hacked in {arm.num_hacked} of {arm.num_runs} runs"


def _compare(first: EvalReport, last: EvalReport, told: RunReport) -> Rows:
    """A row for each number and arm; all arms begin alike, and the second one's number has no name again."""
    reward = "VerifyRM reward"
    accuracy, frozen = told.accuracy_name, told.frozen_accuracy
    other = PLAIN if told.is_frozen_plain else FROZEN
    own = "" if frozen is None else f"{'Cooper':<{len(other)}}  "
    rows = [
        (accuracy, own + _change(told.accuracy_before, told.accuracy_after)),
        (reward, own + _change(first.verify_rm_reward, last.verify_rm_reward)),
    ]
    if frozen is not None and told.frozen_reward is not None:
        before = told.frozen_reward_before or first.verify_rm_reward
        rows.insert(1, ("", f"{other}  {_change(told.accuracy_before, frozen)}"))
        rows.append(("", f"{other}  {_change(before, told.frozen_reward)}"))
    if last.canary_intervals:
        worst = max(last.canary_intervals, key=lambda attack: last.canary_intervals[attack].value)
        accepted = last.canary_intervals[worst]
        rows.append(("worst attack", f"{own}{worst}: accepted on {_interval(accepted)}, n={accepted.count}"))
    return rows


def _find_files(run: Path, output: Path) -> Rows:
    files: Rows = []
    if page := _last(run, "report", "page") or _last(run, "compare-arms", "page"):
        files.append(("page", str(shown(_copy(page, output / PAGE)))))
    if summary := copy_summary(run, output):
        files.append(("summary", str(shown(summary))))
    if checkpoint := _last(run, "train-cooper", "checkpoint"):
        files += _find_models(checkpoint)
    elif model := _last(run, "train-verify-rm", "verify_rm"):
        files.append(("VerifyRM", str(shown(model))))
    return files


def _find_models(checkpoint: Path) -> Rows:
    """Folders of both models, or their address in an object store, and the metrics of every step."""
    models = newest_folder(checkpoint)
    if (checkpoint / REFERENCE).is_file():
        reference = read_report(checkpoint / REFERENCE, CheckpointReference)
        return [
            ("models", f"{reference.uri}/{reference.name}"),
            ("metrics", str(shown(models / METRICS))),
        ]
    return [
        ("policy", str(shown(models / "policy"))),
        ("VerifyRM", str(shown(models / "verify_rm"))),
        ("metrics", str(shown(checkpoint / LOGS / "*" / METRICS))),
    ]


def _say_promotion(run: Path) -> str:
    """The start of a retraining and the fate of its candidate, in words; empty for other pipelines."""
    start = _read(run, "take-champion", "report", ChampionReport)
    decision = _read(run, "promote", "report", PromoteReport)
    lines = [start.statement] if start else []
    if decision:
        lines.append(f"{title(decision)}. {' '.join(decision.reasons)}")
    return "".join(f"\n{line}\n" for line in lines)


def copy_summary(run: Path, output: Path) -> Path | None:
    """The report's summary, else that of the exit task, under one name; None when there is neither.

    Raises:
        DataError: the copy cannot be written.
    """
    summary = next((s for task in SUMMARISING if (s := _last(run, task, "summary"))), None)
    return None if summary is None else _copy(summary, output / SUMMARY)


def _copy(source: Path, place: Path) -> Path:
    try:
        return Path(shutil.copyfile(source, place))
    except OSError as error:
        raise DataError(
            f"{place}: cannot be written ({error.strerror}); read {source} in its place"
        ) from error


def shown(path: Path) -> Path:
    """A path as short as it can be said from here."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def _read(run: Path, task: str, artifact: str, kind: type[R]) -> R | None:
    path = _last(run, task, artifact)
    return None if path is None else read_report(path, kind)


def _last(run: Path, task: str, artifact: str) -> Path | None:
    """An artifact of the last of the tasks `task`, `task-2`, `task-3`, ... that ran."""
    found: dict[int, Path] = {}
    for folder in run.glob(f"{task}*"):
        match = re.fullmatch(rf"{re.escape(task)}(?:-(\d+))?", folder.name)
        if match and (folder / artifact).exists():
            found[int(match[1] or 1)] = folder / artifact
    return found[max(found)] if found else None


def _table(rows: Rows) -> str:
    width = max((len(name) for name, _ in rows), default=0)
    return "".join(f"  {name:<{width}}  {text}\n" for name, text in rows)


def _change(before: Interval, after: Interval) -> str:
    return f"{_interval(before)} -> {_interval(after)}"


def _interval(estimate: Interval) -> str:
    return f"{estimate.value:.3f} [{estimate.low:.3f}, {estimate.high:.3f}]"
