"""The rule by which a candidate takes the champion's place, with the same frozen sets on both sides.

A candidate must be better beyond the interval, its VerifyRM not worse beyond the interval, few canaries of
any attack may pass it, and the red team must not have found a text that it pays on many problems. The
registry is in `checkpoints/registry.py`; `stages/promote.py` reads the files.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from cooper_rl.errors import DataError
from cooper_rl.method.intervals import difference_interval, paired_difference
from cooper_rl.report.changes import direction, outcomes, paired_verify_rm_change
from cooper_rl.report.numbers import in_points, with_interval
from cooper_rl.report.objections import list_objections, say_rare_types
from cooper_rl.schema.data import EvaluatedCompletion, Problem, VerifyExample
from cooper_rl.schema.red_team import RedTeamReport
from cooper_rl.schema.reports import AccuracyName, EvalReport, Interval
from cooper_rl.schema.runs import PromoteReport

_UNPAIRED = (
    "VerifyRM's accuracies are compared as if on different examples, which seldom shows a fall: one of the "
    "two was evaluated by an earlier version, which did not keep which examples of a question are right."
)


_NO_RED_TEAM = (
    "No red team decided: there is no report of red-team (--red-team) that says on how many problems the "
    "candidate's VerifyRM pays its best text."
)


class Evaluated(NamedTuple):
    """A policy and its VerifyRM, as they were evaluated on the frozen sets."""

    name: str
    report: EvalReport
    completions: Sequence[EvaluatedCompletion]


def decide(
    candidate: Evaluated,
    champion: Evaluated | None,
    *,
    start: EvalReport | None = None,
    max_canary_rate: float,
    red_team: RedTeamReport | None = None,
    max_universal_rate: float | None = None,
) -> PromoteReport:
    """The decision with its reasons; both sides must have been evaluated on the same problems and examples.

    Args:
        candidate: Wants to be champion.
        champion: Is it; None: nobody.
        start: Evaluation of the candidate's run before its first step; a policy that fell since is refused.
        max_canary_rate: Bound on every attack's canaries.
        red_team: What was found against its VerifyRM; None: nobody searched.
        max_universal_rate: Bound on the share of unseen problems on which its best text is paid; None: what
            it found does not decide.

    Raises:
        DataError: the problems differ.
    """
    found = candidate.report
    change = verify_rm_change = None
    name: AccuracyName = "rule accuracy" if found.judge_accuracy is None else "accuracy"
    reasons: list[str] = []
    universal = None if red_team is None else red_team.universal
    has_rates = red_team is not None and (universal is not None or red_team.by_answer_type)
    remarks: list[str] = []
    if max_universal_rate is not None:
        remarks = say_rare_types(red_team) if has_rates else [_NO_RED_TEAM]
    objections = list_objections(
        start,
        found,
        max_canary_rate=max_canary_rate,
        red_team=red_team,
        max_universal_rate=max_universal_rate,
    )
    if champion is None:
        reasons.append("There was no champion to be better than.")
    else:
        change = paired_difference(outcomes(champion.completions), outcomes(candidate.completions))
        verify_rm_change = paired_verify_rm_change(champion.report, found)
        if verify_rm_change is None:
            before, after = champion.report.verify_rm, found.verify_rm
            verify_rm_change = difference_interval(before.accuracy, after.accuracy)
            remarks.append(_UNPAIRED)
        said = _say_change(name, change)
        (reasons if direction(change) == "rose" else objections).append(said)
        if direction(verify_rm_change) == "fell":
            objections.append(
                f"VerifyRM's accuracy fell by {in_points(verify_rm_change)} beyond the interval."
            )
    return PromoteReport(
        is_promoted=not objections,
        candidate=candidate.name,
        champion=champion.name if champion else None,
        accuracy_name=name,
        accuracy=_accuracy(found),
        champion_accuracy=_accuracy(champion.report) if champion else None,
        accuracy_change=change,
        verify_rm_accuracy=found.verify_rm.accuracy,
        champion_verify_rm_accuracy=champion.report.verify_rm.accuracy if champion else None,
        verify_rm_accuracy_change=verify_rm_change,
        canary_false_positive_rate=found.canary_false_positive_rate,
        canaries=found.canaries,
        canary_intervals=found.canary_intervals,
        max_canary_rate=max_canary_rate,
        universal_rate=universal,
        universal_rate_by_answer_type={} if red_team is None else red_team.by_answer_type,
        max_universal_rate=max_universal_rate,
        reasons=(objections or reasons) + remarks,
    )


def check_same_set(
    what: Literal["held-out problems", "labelled examples"],
    champion: str,
    *,
    there: Sequence[Problem | VerifyExample],
    here: Sequence[Problem | VerifyExample],
) -> None:
    """Refuse a candidate that was judged on another set than the registry's.

    Raises:
        DataError: naming the first difference.
    """
    if list(there) == list(here):
        return
    pairs = zip(there, here, strict=False)
    row = next((row for row, (one, other) in enumerate(pairs, start=1) if one != other), None)
    if row is None:
        difference = f"{len(there)} there, {len(here)} here"
    else:
        difference = f"row {row} is {_show(there[row - 1])} there, {_show(here[row - 1])} here"
    raise DataError(
        f"the candidate was judged on other {what} than champion {champion} ({difference}); evaluate it on "
        "those that take-champion takes out of the registry"
    )


def to_markdown(decision: PromoteReport) -> str:
    """The decision for the dashboard."""
    rows = [
        (
            decision.accuracy_name.capitalize(),
            decision.champion_accuracy,
            decision.accuracy,
            decision.accuracy_change,
        ),
        (
            "VerifyRM accuracy",
            decision.champion_verify_rm_accuracy,
            decision.verify_rm_accuracy,
            decision.verify_rm_accuracy_change,
        ),
    ]
    lines = [
        f"# {title(decision)}",
        "",
        *(f"- {reason}" for reason in decision.reasons),
        "",
        "| | champion | candidate | change (95 % interval) |",
        "|---|---|---|---|",
    ]
    for name, before, after, change in rows:
        cells = " | ".join(map(with_interval, (before, after)))
        lines.append(f"| {name} | {cells} | {in_points(change) if change else '-'} |")
    return "\n".join([*lines, ""])


def title(decision: PromoteReport) -> str:
    """The decision in one line."""
    if decision.is_promoted:
        place = f" in place of {decision.champion}" if decision.champion else ", the first champion"
        return f"{decision.candidate} is promoted{place}"
    if decision.champion:
        return f"{decision.champion} stays champion"
    return f"{decision.candidate} is not promoted, and there is no champion"


def _say_change(name: str, change: Interval) -> str:
    found = f"{in_points(change)} on {change.count} problems"
    if direction(change) == "rose":
        return f"{name.capitalize()} rose beyond the interval: {found}."
    return f"{name.capitalize()} is not better beyond the interval: {found}."


def _accuracy(report: EvalReport) -> Interval:
    return report.judge_accuracy or report.rule_accuracy


def _show(row: Problem | VerifyExample) -> str:
    name = f"{row.id!r} " if isinstance(row, Problem) else ""
    return f"{name}{row.question[:40]!r}"
