"""Changes from one evaluation to another, by hand."""

import pytest

from cooper_rl.method.intervals import clustered_interval, difference_interval
from cooper_rl.report.changes import changes, direction, is_paired, paired_verify_rm_change
from cooper_rl.report.text import caveat
from cooper_rl.schema.reports import EvalReport, ProblemScores
from tests.stages.run_files import make_evaluation


def evaluation(right: list[int], *, hits: str | None = None, first_id: int = 0) -> EvalReport:
    """A completion of each problem, right or not by judge and rule, with the reward .25 or .75."""
    base = make_evaluation(0, 0.5, 0.5)
    accuracy = clustered_interval([[float(each)] for each in right])
    by_problem = [
        ProblemScores(
            id=str(number), rule_accuracy=each, judge_accuracy=each, verify_rm_reward=0.25 + each / 2
        )
        for number, each in enumerate(right, start=first_id)
    ]
    changed = {"rule_accuracy": accuracy, "judge_accuracy": accuracy, "by_problem": by_problem}
    # `hits` as earlier versions wrote them: a word for each question.
    return EvalReport.model_validate(dict(base) | changed | {"verify_rm_hits": hits})


def test_a_change_is_that_of_the_same_problems() -> None:
    """6 of 60 problems turn right and 30 stay right: mean .1, squares 6 * .9^2 + 54 * .1^2 = 5.4,
    t(59) = 2.000995, half 2.000995 * sqrt(5.4 * 60/59) / 60 = .078153. The reward changes by half of that.
    As if independent, .5 and .6 differ by -.07 to .27."""
    before, after = evaluation([1] * 30 + [0] * 30), evaluation([1] * 36 + [0] * 24)
    found = changes(before, after)
    assert is_paired(before, after)
    assert found.judge_accuracy == found.rule_accuracy
    assert found.judge_accuracy is not None
    assert found.judge_accuracy.value == pytest.approx(0.1)
    assert found.judge_accuracy.low == pytest.approx(0.1 - 0.078153, abs=1e-6)
    assert direction(found.judge_accuracy) == "rose"
    assert found.verify_rm_reward.value == pytest.approx(0.05)
    assert found.verify_rm_reward.high == pytest.approx(0.05 + 0.078153 / 2, abs=1e-6)
    assert direction(difference_interval(before.rule_accuracy, after.rule_accuracy)) != "rose"
    assert "A change is that of the same problems, paired." in caveat([before, after])


def test_problems_that_share_an_id_all_count() -> None:
    """As in a file that was put together from two."""
    before, after = evaluation([0, 0, 0, 1]), evaluation([1, 0, 0, 1])
    for each in (before, after):
        each.by_problem[1] = each.by_problem[1].model_copy(update={"id": "0"})
    found = changes(before, after).rule_accuracy
    assert (found.value, found.count) == (0.25, 4)


def test_evaluations_of_other_problems_are_as_if_independent() -> None:
    """So are those of an earlier version, which did not say what was found on each problem."""
    before, after = evaluation([1] * 30 + [0] * 30), evaluation([1] * 36 + [0] * 24)
    for other in (evaluation([1] * 30 + [0] * 30, first_id=1), before.model_copy(update={"by_problem": []})):
        found = changes(other, after)
        assert not is_paired(other, after)
        assert found.rule_accuracy == difference_interval(before.rule_accuracy, after.rule_accuracy)
        assert "A change is taken as a difference of independent evaluations" in caveat([other, after])


def test_without_a_judge_on_one_side_there_is_no_change_of_its_verdicts() -> None:
    before, after = evaluation([1, 0]), evaluation([1, 1])
    unjudged = [each.model_copy(update={"judge_accuracy": None}) for each in before.by_problem]
    before = before.model_copy(update={"judge_accuracy": None, "by_problem": unjudged})
    found = changes(before, after)
    assert found.judge_accuracy is None
    assert found.rule_accuracy.value == 0.5


def test_verify_rm_is_paired_by_question() -> None:
    """Questions of 2, 1 and 2 examples, whose means change by 1/2, 1 and 0: by .4 over all. The squares
    (2 * .1)^2 + .6^2 + (2 * .4)^2 = .84 are less than half a question's, (5/3)^2 (1 + .4^2)/2 = 1.611111;
    t(2) = 4.302653, half 4.302653 * sqrt(1.611111 * 3/2) / 5 = 1.337749."""
    one, other = evaluation([1, 0], hits="01 0 11"), evaluation([1, 0], hits="11 1 11")
    found = paired_verify_rm_change(one, other)
    assert found is not None
    assert (found.value, found.low, found.high) == pytest.approx((0.4, 0.4 - 1.337749, 1.0), abs=1e-6)
    assert changes(one, other).verify_rm_accuracy == found


@pytest.mark.parametrize("hits", [None, "01011", "01 0 1 1"])
def test_verify_rm_of_an_earlier_version_or_other_examples_is_not_paired(hits: str | None) -> None:
    one, other = evaluation([1, 0], hits=hits), evaluation([1, 0], hits="11 1 11")
    assert paired_verify_rm_change(one, other) is None
    expected = difference_interval(one.verify_rm.accuracy, other.verify_rm.accuracy)
    assert changes(one, other).verify_rm_accuracy == expected
