"""Changes from one evaluation to another, paired by problem where both saw the same ones.

`report/text.py` puts a change into words, and `run/promotion.py` decides by it.
"""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from cooper_rl.method.intervals import difference_interval, paired_difference
from cooper_rl.schema.data import EvaluatedCompletion, Verdict
from cooper_rl.schema.reports import AccuracyName, EvalReport, Interval, ProblemScores

Direction = Literal["rose", "fell", "is not shown to have changed"]


class Changes(NamedTuple):
    """Later minus earlier evaluation."""

    judge_accuracy: Interval | None
    """None: one of the two had no judge."""
    rule_accuracy: Interval
    verify_rm_reward: Interval
    verify_rm_accuracy: Interval


def is_paired(before: EvalReport, after: EvalReport) -> bool:
    """True if both evaluations have results by problem, of the same problems."""
    names = [each.id for each in before.by_problem]
    return len(names) > 1 and names == [each.id for each in after.by_problem]


def changes(before: EvalReport, after: EvalReport) -> Changes:
    """The policy's three by problem where they can be paired, else as if of independent evaluations."""
    can_pair = is_paired(before, after)

    def change(first: Interval, last: Interval, read: Callable[[ProblemScores], float | None]) -> Interval:
        if not can_pair:
            return difference_interval(first, last)
        one, other = (
            {
                str(place): [value]
                for place, each in enumerate(side.by_problem)
                if (value := read(each)) is not None
            }
            for side in (before, after)
        )
        return paired_difference(one, other)

    judged = None
    if before.judge_accuracy is not None and after.judge_accuracy is not None:
        judged = change(before.judge_accuracy, after.judge_accuracy, lambda p: p.judge_accuracy)
    return Changes(
        judge_accuracy=judged,
        rule_accuracy=change(before.rule_accuracy, after.rule_accuracy, lambda p: p.rule_accuracy),
        verify_rm_reward=change(
            before.verify_rm_reward, after.verify_rm_reward, lambda p: p.verify_rm_reward
        ),
        verify_rm_accuracy=paired_verify_rm_change(before, after)
        or difference_interval(before.verify_rm.accuracy, after.verify_rm.accuracy),
    )


def paired_verify_rm_change(before: EvalReport, after: EvalReport) -> Interval | None:
    """The change of VerifyRM's accuracy on the same examples, paired by question. None where an evaluation
    does not say which examples of which question were right, or they were others."""
    one, other = (
        {str(place): list(map(float, hits)) for place, hits in enumerate(each.verify_rm_hits or [])}
        for each in (before, after)
    )
    if len(one) < 2 or [len(hits) for hits in one.values()] != [len(hits) for hits in other.values()]:
        return None
    return paired_difference(one, other)


def find_accuracy(first: EvalReport, last: EvalReport) -> tuple[AccuracyName, Interval, Interval, Interval]:
    """Name, before, after and change: by the judge where both asked one, else by the rule."""
    found = changes(first, last)
    if found.judge_accuracy and first.judge_accuracy and last.judge_accuracy:
        return "accuracy", first.judge_accuracy, last.judge_accuracy, found.judge_accuracy
    return "rule accuracy", first.rule_accuracy, last.rule_accuracy, found.rule_accuracy


def told_by_others(evaluations: Sequence[EvalReport], name: AccuracyName) -> list[int]:
    """Steps of the evaluations whose pass@k and mean over sources are not of this accuracy."""
    return [each.step for each in evaluations if (each.judge_accuracy is None) == (name == "accuracy")]


def direction(change: Interval) -> Direction:
    """The direction of a change, as far as its interval shows one."""
    if change.low > 0:
        return "rose"
    return "fell" if change.high < 0 else "is not shown to have changed"


def verdict(completion: EvaluatedCompletion) -> Verdict:
    """The judge's where there is one, else the rule's."""
    return completion.rule if completion.judge is None else completion.judge


def outcomes(completions: Sequence[EvaluatedCompletion]) -> dict[str, list[float]]:
    """Problem id -> 1 for every completion that is right by its verdict, else 0."""
    return by_problem(completions, lambda completion: float(verdict(completion) == "correct"))


def by_problem(
    completions: Sequence[EvaluatedCompletion], read: Callable[[EvaluatedCompletion], float]
) -> dict[str, list[float]]:
    """Problem id -> a number of each of its completions."""
    found: dict[str, list[float]] = {}
    for completion in completions:
        found.setdefault(completion.problem_id, []).append(read(completion))
    return found
