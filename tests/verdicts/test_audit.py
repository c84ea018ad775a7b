"""The error of labels that nobody checked, from a cascade's random check."""

import random

import pytest

from cooper_rl.method.intervals import wilson_bounds
from cooper_rl.schema.data import Label, Verdict
from cooper_rl.verdicts.audit import AuditCounter

YES, NO, NONE = "correct", "incorrect", "unparsable"


def feed(counter: AuditCounter, count: int, *said: Verdict | None, first: int = 0) -> None:
    """`said` are rule, judge and third; every completion is of a question of its own."""
    rule, judge, third = (*said, None)[:3]
    assert rule is not None
    label = Label(
        completion_id="c", rule=rule, rule_reason="", judge=judge, judge_model=None, third=third,
        is_correct=None, reason="",
    )  # fmt: skip
    for number in range(first, first + count):
        counter.add(label, question=f"q{number}")


def test_the_error_is_told_for_each_verdict_and_projected_to_the_labels_nobody_checked() -> None:
    """Correct: 2 of 100 contradicted, 1,000 unchecked: 20 wrong. Incorrect: 10 of 50, 300 unchecked: 60.
    Together 80; the margins add in quadrature.
    """
    counter = AuditCounter()
    feed(counter, 98, YES, YES)
    feed(counter, 2, YES, NO, first=98)
    feed(counter, 40, NO, NO, first=1000)
    feed(counter, 10, NO, YES, first=1040)
    feed(counter, 1000, YES, None)
    feed(counter, 300, NO, None)
    feed(counter, 7, NONE, YES)
    feed(counter, 5, YES, NONE)
    found = counter.report()
    assert found is not None
    assert (found.num_audited, found.num_unchecked, found.differing_share.value) == (150, 1300, 12 / 150)
    yes, no = found.correct, found.incorrect
    assert yes is not None
    assert no is not None
    assert (yes.num_audited, yes.num_contradicted, yes.num_unchecked) == (100, 2, 1000)
    assert yes.wrong_share is not None
    bounds = wilson_bounds(0.02, 100)
    assert (yes.wrong_share.low, yes.wrong_share.high) == pytest.approx(bounds, abs=2e-3)
    assert yes.num_wrong is not None
    assert no.num_wrong is not None
    assert found.num_wrong is not None
    assert (yes.num_wrong.value, no.num_wrong.value) == pytest.approx((20, 60))
    assert found.num_wrong.value == pytest.approx(80)
    up = [each.high - each.value for each in (yes.num_wrong, no.num_wrong)]
    assert found.num_wrong.high == pytest.approx(80 + (up[0] ** 2 + up[1] ** 2) ** 0.5)


def test_a_third_vote_for_the_rule_upholds_its_verdict() -> None:
    counter = AuditCounter()
    for third in (YES, NO, NONE):
        feed(counter, 1, YES, NO, third)
    found = counter.report()
    assert found is not None
    assert found.correct is not None
    assert (found.correct.num_audited, found.correct.num_contradicted) == (3, 2)


def test_a_kind_that_was_never_audited_leaves_the_number_of_wrong_labels_open() -> None:
    counter = AuditCounter()
    feed(counter, 10, YES, YES)
    feed(counter, 10, NO, None)
    found = counter.report()
    assert found is not None
    assert found.incorrect is not None
    assert (found.incorrect.wrong_share, found.incorrect.num_wrong, found.num_wrong) == (None, None, None)
    assert AuditCounter().report() is None


def test_the_interval_holds_the_true_number_of_wrong_labels_in_nineteen_of_twenty_runs() -> None:
    """2,000 rows, 1 % of `correct` and 5 % of `incorrect` wrong, a tenth audited by a perfect judge."""
    rng, hits = random.Random(0), 0
    for _ in range(100):
        counter, num_wrong = AuditCounter(), 0
        for number in range(2000):
            rule, error = (YES, 0.01) if rng.random() < 0.6 else (NO, 0.05)
            is_wrong = rng.random() < error
            truth = (NO if rule == YES else YES) if is_wrong else rule
            if rng.random() < 0.1:
                feed(counter, 1, rule, truth, first=number)
            else:
                feed(counter, 1, rule, None, first=number)
                num_wrong += is_wrong
        found = counter.report()
        assert found is not None
        assert found.num_wrong is not None
        hits += found.num_wrong.low <= num_wrong <= found.num_wrong.high
    assert hits >= 90
