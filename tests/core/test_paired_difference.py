"""The change of the same problems against numbers worked out by hand."""

import pytest

from cooper_rl.core.intervals import paired_difference
from cooper_rl.errors import DataError


def test_three_changes_give_the_hand_worked_interval() -> None:
    """Changes 0, .5, 1: mean .5, variance .25, error sqrt(.25 / 3) = .144338 * 2 = .288675, t(2) = 4.302653.

    The half width is 4.302653 * .288675 = 1.242069.
    """
    before = {"a": [0.0, 1.0], "b": [0.0, 0.0], "c": [0.0]}
    after = {"a": [1.0, 0.0], "b": [1.0, 0.0], "c": [1.0, 1.0]}
    found = paired_difference(before, after)
    assert (found.value, found.count) == (0.5, 3)
    assert found.high - found.value == pytest.approx(1.242069, abs=1e-3)
    assert found.value - found.low == pytest.approx(1.242069, abs=1e-3)


def test_problems_that_all_change_alike_leave_no_doubt() -> None:
    """However different the problems are: that is what pairing is for."""
    found = paired_difference({"a": [0.0], "b": [0.5]}, {"a": [0.25], "b": [0.75]})
    assert (found.low, found.value, found.high) == (0.25, 0.25, 0.25)


def test_a_problem_weighs_by_its_samples_so_that_the_change_is_that_of_the_means() -> None:
    """a falls by 1 with three samples, b stays with one: -3/4. Squares (3 * -.25)^2 + (.75)^2 = 1.125; the
    error is sqrt(1.125 * 2) / 4 = .375, and t(1) = 12.706205."""
    found = paired_difference({"a": [1.0] * 3, "b": [1.0]}, {"a": [0.0] * 3, "b": [1.0]})
    assert found.value == -0.75
    assert found.high - found.value == pytest.approx(12.706205 * 0.375, abs=1e-5)


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
