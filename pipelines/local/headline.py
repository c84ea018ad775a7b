"""What a local run has shown, in a few lines, from the files in its folder.

Kubeflow gives a pipeline with an exit task no outputs of its own, so they are found by task and name. Tasks
that these lines need are never cached. Deliberately left out: the report, which says it all.
"""

import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from cooper_rl.checkpoints.manifest import LATEST
from cooper_rl.records.files import read_records, read_report
from cooper_rl.run.promotion import title
from cooper_rl.schema.data import BinaryScores, EvalReport, EvaluateVerifyRMReport, Interval, RunReport
from cooper_rl.schema.runs import ChampionReport, PromoteReport

Rows = list[tuple[str, str]]


def headline(run: Path, output: Path) -> str:
    """Numbers and files of a finished run, in lines that a person reads last.

    Args:
        run: folder of the run, with one folder per task.
        output: folder that the person named; report and summary are copied there.
    """
    rows: Rows = []
    files: Rows = []
    num_problems = 0
    refusal = ""
    if evaluation := _last(run, "evaluate-policy", "evaluations"):
        evaluations = read_records(evaluation, EvalReport)
        num_problems = evaluations[0].num_problems
        rows += _compare(evaluations)
    elif scores := _last(run, "evaluate-verify-rm", "report"):
        found = read_report(scores, EvaluateVerifyRMReport)
        rows += _say_verify_rm(None, found.overall, None, found.canaries)
    if page := _last(run, "report", "page"):
        files.append(("report", str(shown(Path(shutil.copyfile(page, output / "report.html"))))))
    if result := _last(run, "report", "report"):
        told = read_report(result, RunReport)
        said = told.promotion_objection
        refusal = f"\nIts promotion would be refused: {said}\n" if said else ""
        rows += _say_frozen(told)
    if summary := copy_summary(run, output):
        files.append(("summary", str(shown(summary))))
    if checkpoint := _last(run, "train-cooper", "checkpoint"):
        step = (checkpoint / LATEST).read_text(encoding="utf-8").strip()
        files.append(("models", str(shown(checkpoint / step))))
    elif model := _last(run, "train-verify-rm", "verify_rm"):
        files.append(("VerifyRM", str(shown(model))))
    said = refusal + _say_promotion(run)
    where = f"On {num_problems} held-out problems, with 95 % intervals:\n" if num_problems else ""
    return f"{where}\n{_table(rows)}{said}\n{_table(files)}"


def _say_promotion(run: Path) -> str:
    """Where a retraining started and what became of its candidate; empty for other pipelines."""
    start, decision = _last(run, "take-champion", "report"), _last(run, "promote", "report")
    lines = [read_report(start, ChampionReport).statement] if start else []
    if decision:
        found = read_report(decision, PromoteReport)
        lines.append(f"{title(found)}. {' '.join(found.reasons)}")
    return "".join(f"\n{line}\n" for line in lines)


def copy_summary(run: Path, output: Path) -> Path | None:
    """The report's summary, else that of the exit task, under one name; None when there is neither."""
    summary = _last(run, "report", "summary") or _last(run, "summarise-run", "summary")
    return None if summary is None else Path(shutil.copyfile(summary, output / "summary.md"))


def shown(path: Path) -> Path:
    """A path as short as it can be said from here."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def _last(run: Path, task: str, artifact: str) -> Path | None:
    """An artifact of the last of the tasks `task`, `task-2`, `task-3`, ... that ran."""
    found: dict[int, Path] = {}
    for folder in run.glob(f"{task}*"):
        match = re.fullmatch(rf"{re.escape(task)}(?:-(\d+))?", folder.name)
        if match and (folder / artifact).exists():
            found[int(match[1] or 1)] = folder / artifact
    return found[max(found)] if found else None


def _compare(evaluations: Sequence[EvalReport]) -> Rows:
    first, last = evaluations[0], evaluations[-1]
    rows = [
        (
            f"rule accuracy, step {first.step} -> {last.step}",
            _change(first.rule_accuracy, last.rule_accuracy),
        ),
        ("VerifyRM reward", _change(first.verify_rm_reward, last.verify_rm_reward)),
    ]
    if first.judge_accuracy is not None and last.judge_accuracy is not None:
        rows.insert(0, ("accuracy by meaning", _change(first.judge_accuracy, last.judge_accuracy)))
    return rows + _say_verify_rm(
        first.verify_rm, last.verify_rm, first.canary_intervals, last.canary_intervals
    )


def _say_frozen(report: RunReport) -> Rows:
    """Where the arm with a frozen VerifyRM ended, which began where the run began."""
    if report.frozen_accuracy is None or report.frozen_reward is None:
        return []
    accuracy = _change(report.accuracy_before, report.frozen_accuracy)
    return [
        ("with VerifyRM frozen: accuracy", accuracy),
        ("with VerifyRM frozen: reward", _interval(report.frozen_reward)),
    ]


def _say_verify_rm(
    before: BinaryScores | None,
    found: BinaryScores,
    attacks_before: Mapping[str, Interval] | None,
    attacks: Mapping[str, Interval],
) -> Rows:
    """Accuracy and worst attack of VerifyRM, before and after co-training where there was any."""
    accuracy = _interval(found.accuracy) if before is None else _change(before.accuracy, found.accuracy)
    name = f"VerifyRM accuracy, {found.num_examples} examples"
    rows = [(name, f"{accuracy}  (majority {found.majority_accuracy:.3f})")]
    if attacks:
        worst = max(attacks, key=lambda attack: attacks[attack].value)
        start = (attacks_before or {}).get(worst)
        rate = _change(start, attacks[worst]) if start else _interval(attacks[worst])
        rows.append(("worst attack accepted", f"{rate}  ({worst})"))
    return rows


def _table(rows: Rows) -> str:
    width = max((len(name) for name, _ in rows), default=0)
    return "".join(f"  {name:<{width}}  {text}\n" for name, text in rows)


def _change(before: Interval, after: Interval) -> str:
    return f"{_interval(before)} -> {_interval(after)}"


def _interval(estimate: Interval) -> str:
    return f"{estimate.value:.3f} [{estimate.low:.3f}, {estimate.high:.3f}]"
