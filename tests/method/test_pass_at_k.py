"""pass@k against all subsets, and its interval."""

import random
from itertools import combinations

import pytest

from cooper_rl.errors import DataError
from cooper_rl.method.intervals import clustered_interval
from cooper_rl.method.pass_at_k import pass_at, pass_at_k


@pytest.mark.parametrize("num_right", range(6))
@pytest.mark.parametrize("k", [1, 2, 4, 5])
def test_the_estimate_is_the_share_of_all_draws_of_k_that_hold_a_right_one(k: int, num_right: int) -> None:
    outcomes = [True] * num_right + [False] * (5 - num_right)
    draws = list(combinations(outcomes, k))
    expected = sum(map(any, draws)) / len(draws)
    assert pass_at(k, num_samples=5, num_right=num_right) == pytest.approx(expected)


def test_k_goes_as_far_as_the_completions_and_1_is_the_accuracy() -> None:
    """Problem one is right once in four: pass@2 is 3/6, pass@4 is 1. Problem two never."""
    outcomes = [[1.0, 0.0, 0.0, 0.0], [0.0] * 4]
    found = pass_at_k(outcomes)
    assert list(found) == [1, 2, 4]
    assert found[1] == clustered_interval(outcomes)
    assert [found[k].value for k in found] == pytest.approx([0.125, 0.25, 0.5])
    assert {interval.count for interval in found.values()} == {2}
    assert all(interval.low < interval.value < interval.high for interval in found.values())


def test_it_rises_with_k_and_is_bounded_by_the_problem_with_the_fewest_completions() -> None:
    outcomes = [[1.0, 0.0] * 4, [0.0] * 7 + [1.0], [0.0] * 3 + [1.0] * 5]
    values = [interval.value for interval in pass_at_k(outcomes).values()]
    assert values == sorted(values)
    assert len(values) == 4
    assert list(pass_at_k([*outcomes, [1.0, 0.0, 0.0]])) == [1, 2]


def test_intervals_near_one_cover_the_truth() -> None:
    """Rates from Beta(3, .15): of 4 completions one is right on 1 - E[(1 - p)^4] of the problems.

    That is 1 - .15 * 1.15 * 2.15 * 3.15 / (3.15 * 4.15 * 5.15 * 6.15), .997.
    """
    rng = random.Random(11)
    truth = 1 - 0.15 * 1.15 * 2.15 * 3.15 / (3.15 * 4.15 * 5.15 * 6.15)
    covered = 0
    for _ in range(200):
        rates = [rng.betavariate(3, 0.15) for _ in range(100)]
        found = pass_at_k([[float(rng.random() < rate) for _ in range(8)] for rate in rates])[4]
        covered += found.low <= truth <= found.high
    assert covered / 200 >= 0.93


def test_without_problems_there_is_nothing_to_estimate() -> None:
    with pytest.raises(DataError, match="an interval needs values"):
        pass_at_k([])
