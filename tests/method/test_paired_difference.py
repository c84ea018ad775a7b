"""The change of the same problems against numbers worked out by hand."""

import pytest

from cooper_rl.errors import DataError
from cooper_rl.method.intervals import paired_difference


def test_three_changes_give_the_hand_worked_interval() -> None:
    """Changes 0, .5, 1: mean .5, variance .25, error sqrt(.25 / 3) = .144338 * 2 = .288675, t(2) = 4.302653.

    The half width is 4.302653 * .288675 = 1.242069; no change is above 1, and the squares, .5, are under
    half a problem's, .625, which widens it by sqrt(1.25) to 1.388676.
    """
    before = {"a": [0.0, 1.0], "b": [0.0, 0.0], "c": [0.0]}
    after = {"a": [1.0, 0.0], "b": [1.0, 0.0], "c": [1.0, 1.0]}
    found = paired_difference(before, after)
    assert (found.value, found.count, found.high) == (0.5, 3, 1.0)
    assert found.low == pytest.approx(0.5 - 1.388676, abs=1e-3)


def test_four_changes_give_the_hand_worked_interval() -> None:
    """Changes 0, 0, 1, 1 with two samples each: mean .5, squares 4 * (2 * .5)^2 = 4, over half a problem's.

    The error is sqrt(4 * 4/3) / 8 = .288675 and t(3) = 3.182446, so the interval is .5 -+ .918693.
    """
    before = {name: [0.0, 0.0] for name in "abcd"}
    found = paired_difference(before, before | {"c": [1.0, 1.0], "d": [1.0, 1.0]})
    assert (found.value, found.high) == (0.5, 1.0)
    assert found.low == pytest.approx(0.5 - 0.918693, abs=1e-5)


def test_problems_that_all_change_alike_are_no_certainty() -> None:
    """8 of 8 turn right: half a problem as likely up as down has (1 + 1^2)/2 = 1 for its squares, so the
    error is sqrt(8/7) / 8 = .133631, t(7) = 2.364624, and low = 1 - .315987. Of two, t(1) = 12.7 leaves
    nothing known."""
    many, two = ({name: [0.0] for name in names} for names in ("abcdefgh", "ab"))
    found = paired_difference(many, {name: [1.0] for name in many})
    assert (found.value, found.high) == (1.0, 1.0)
    assert found.low == pytest.approx(0.684013, abs=1e-6)
    assert paired_difference(two, {name: [1.0] for name in two}).low == -1.0


def test_no_change_leaves_the_doubt_of_half_a_problem() -> None:
    """200 problems: sqrt(.5 * 200/199) / 200 * 1.971957 = .006990."""
    same = {str(number): [number / 200] * 4 for number in range(200)}
    found = paired_difference(same, same)
    assert (found.low, found.value, found.high) == pytest.approx((-0.00699, 0.0, 0.00699), abs=1e-6)


def test_a_problem_weighs_by_its_samples_so_that_the_change_is_that_of_the_means() -> None:
    """a falls by 1 with three samples, b to u stay with one: mean -3/23. Squares (3 * -20/23)^2 +
    20 * (3/23)^2 = 7.145558; the error is sqrt(7.145558 * 21/20) / 23 = .119094, and t(20) = 2.085963."""
    before = {"a": [1.0] * 3} | {name: [1.0] for name in "bcdefghijklmnopqrstu"}
    found = paired_difference(before, before | {"a": [0.0] * 3})
    assert found.value == pytest.approx(-3 / 23)
    assert found.high - found.value == pytest.approx(2.085963 * 0.119094, abs=1e-4)


@pytest.mark.parametrize(
    ("before", "after"),
    [({"a": [1.0]}, {"a": [1.0]}), ({"a": [1.0], "b": [1.0]}, {"a": [1.0], "c": [1.0]}), ({}, {})],
    ids=["one problem", "other problems", "none"],
)
def test_other_problems_or_fewer_than_two_are_refused(before, after) -> None:
    with pytest.raises(
        DataError, match=rf"same two problems or more on both sides, not {len(before)} and {len(after)}"
    ):
        paired_difference(before, after)
