"""Changes from one evaluation to another, paired by problem where both saw the same ones.

`report/text.py` puts a change into words, and `run/promotion.py` decides by it.
"""

from collections.abc import Callable
from typing import NamedTuple

from cooper_rl.method.intervals import difference_interval, paired_difference
from cooper_rl.schema.reports import EvalReport, Interval, ProblemScores


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
