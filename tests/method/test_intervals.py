"""Intervals against numbers worked out by hand, and how often they cover the truth."""

import random

import pytest

from cooper_rl.errors import DataError
from cooper_rl.method.intervals import (
    clustered_interval,
    difference_interval,
    kish_size,
    mean_of_independent,
    t_quantile,
    weighted_total,
    widened_by_runs,
    wilson_bounds,
)
from cooper_rl.schema.reports import Interval


def test_an_interval_needs_values_between_zero_and_one():
    with pytest.raises(DataError, match=r"needs values in \[0, 1\] and there are none"):
        clustered_interval([])
    with pytest.raises(DataError, match=r"needs values in \[0, 1\] and 1.5 is not one"):
        clustered_interval([[0.5], [1.5]])


def test_single_samples_give_the_wilson_interval():
    """8 of 10 by Wilson 1927: centre (.8+.192)/(1.384)=.7167, half .2266 -> (.4901, .9433)."""
    found = clustered_interval([[1.0]] * 8 + [[0.0]] * 2)
    # The corrections lower the effective size below 10, which the floor of k problems lifts again.
    assert (found.low, found.high) == pytest.approx((0.4901, 0.9433), abs=1e-4)


def test_all_correct_is_not_certainty():
    """10 of 10 problems: low = 1/(1 + 3.8415/10) = .7225, however many samples each problem has."""
    one, many = clustered_interval([[1.0]] * 10), clustered_interval([[1.0] * 64] * 10)
    assert one == many
    assert one.low == pytest.approx(0.7225, abs=1e-4)
    assert one.high == 1.0
    none = clustered_interval([[0.0] * 4] * 10)
    assert (none.low, none.high) == (0.0, pytest.approx(0.2775, abs=1e-4))


def test_identical_samples_of_a_problem_add_nothing():
    """4 problems, 3 correct: 16 copies of every outcome leave the interval of single samples."""
    single = clustered_interval([[1.0], [1.0], [1.0], [0.0]])
    copied = clustered_interval([[1.0] * 16] * 3 + [[0.0] * 16])
    assert (copied.low, copied.high) == pytest.approx((single.low, single.high))
    assert copied.count == 4


def test_problems_that_do_not_differ_count_every_sample():
    found = clustered_interval([[1.0, 0.0]] * 50)
    independent = clustered_interval([[1.0]] * 50 + [[0.0]] * 50)
    assert (found.low, found.high) == pytest.approx((independent.low, independent.high))


def test_problems_that_differ_count_fewer_than_all_samples():
    """8 problems with 3 or 1 of 4 correct: squares 8 * 1^2 = 8, added 4^2 * (.25 + .25)/2 = 4, so
    v = 12/32^2 * 8/7 = .0133929 and n = .25/v = 18.6667. By Wilson: .5 -+ .206561."""
    found = clustered_interval([[1.0, 1.0, 1.0, 0.0], [1.0, 0.0, 0.0, 0.0]] * 4)
    assert (found.low, found.high) == pytest.approx((0.293439, 0.706561), abs=1e-5)


def test_scores_give_wilsons_interval_at_their_effective_size():
    """Problem means .2 .4 .6: p = .4, squares .32, added 2^2 * (.16 + .36)/2 = 1.04, v = 1.36/36 * 3/2.

    So n = .24/v = 4.235294, and Wilson's centre is .447558, half .341190.
    """
    found = clustered_interval([[0.1, 0.3], [0.4, 0.4], [0.5, 0.7]])
    assert (found.value, found.low, found.high, found.count) == pytest.approx(
        (0.4, 0.106372, 0.788752, 3), abs=1e-6
    )


def test_equal_scores_and_a_single_problem_still_have_a_width():
    assert clustered_interval([[0.7]] * 5).high > 0.7 > clustered_interval([[0.7]] * 5).low
    lone = clustered_interval([[0.2, 0.9]])
    assert lone.high - lone.low > 0.5


def test_one_problem_is_one_outcome_however_many_samples_it_has():
    """.5 of 1 by Wilson: half 1.959964 * sqrt(.25 + 3.841459/4) / 4.841459 = .445382."""
    for found in (clustered_interval([[1.0, 0.0]]), clustered_interval([[1.0, 0.0] * 50])):
        assert (found.low, found.high) == pytest.approx((0.054618, 0.945382), abs=1e-5)


def test_a_problem_with_many_samples_is_no_more_than_one_problem():
    """Nine of 1 sample, one of 9, all right: 18^2 / (9 + 81) = 3.6 outcomes, low = 1/(1 + 3.841459/3.6)."""
    found = clustered_interval([[1.0]] * 9 + [[1.0] * 9])
    assert (found.low, found.high) == (pytest.approx(0.483776, abs=1e-6), 1.0)
    assert kish_size([4] * 9) == 9


@pytest.mark.parametrize("mean", [0.5, 0.8])
def test_problems_of_very_different_sizes_are_covered_too(mean: float):
    """One problem in five has 10 samples, the others 1; all samples of a problem are equal."""
    rng = random.Random(9)
    covered = 0
    for _ in range(300):
        sizes = [10 if rng.random() < 0.2 else 1 for _ in range(150)]
        found = clustered_interval([[float(rng.random() < mean)] * size for size in sizes])
        covered += found.low <= mean <= found.high
    assert covered / 300 >= 0.91


@pytest.mark.parametrize("size", range(1, 101))
def test_bounds_at_nothing_and_everything_are_exact(size: int):
    assert wilson_bounds(0.0, size)[0] == 0.0
    assert wilson_bounds(1.0, size)[1] == 1.0


def test_two_problems_of_scores_say_little():
    """Squares .08, added (.16 + .36)/2 = .26, v = .34/4 * 2 = .17: .24/v is under two problems, so n = 2."""
    found = clustered_interval([[0.2], [0.6]])
    assert (found.low, found.high) == pytest.approx(wilson_bounds(0.4, 2))
    assert found.high - found.low > 0.75


def test_scores_that_are_nearly_equal_are_not_certain():
    """A hundred at .999, one of them a hair off: 98 of 100 is not excluded, as it is not of 100 outcomes."""
    found = clustered_interval([[0.999]] * 99 + [[0.998]])
    assert found.low < 0.98 < found.high


@pytest.mark.parametrize(
    ("degrees", "expected"), [(1, 12.7062), (9, 2.2622), (10, 2.2281), (29, 2.0452), (200, 1.9719)]
)
def test_t_quantiles_are_those_of_the_printed_table(degrees, expected):
    assert t_quantile(degrees) == pytest.approx(expected, abs=2e-4)


def test_the_quantile_of_ten_degrees_is_the_hand_worked_expansion():
    """1.959964 + 2.372271 / 10 + 2.822499 / 100 + 2.555850 / 1000 = 2.227972; the table has 2.228139."""
    assert t_quantile(10) == pytest.approx(2.227972, abs=1e-6)


@pytest.mark.parametrize(
    ("mean", "concentration", "num_problems", "num_samples"),
    [(0.5, 2, 40, 4), (0.05, 2, 40, 4), (0.95, 0.5, 40, 8), (0.2, 20, 60, 4)],
)
def test_about_95_percent_of_intervals_cover_the_truth_when_problems_differ(
    mean, concentration, num_problems, num_samples
):
    """Problem accuracies from a Beta; correlation within a problem 1/(1 + concentration).

    As if samples were independent, the third case's standard error would be too small by
    sqrt(1 + 7/1.5) = 2.4.
    """
    rng = random.Random(7)
    covered = 0
    for _ in range(400):
        rates = [
            rng.betavariate(concentration * mean, concentration * (1 - mean)) for _ in range(num_problems)
        ]
        outcomes = [[float(rng.random() < rate) for _ in range(num_samples)] for rate in rates]
        found = clustered_interval(outcomes)
        covered += found.low <= mean <= found.high
    assert 0.93 <= covered / 400 <= 0.99


def test_about_95_percent_of_score_intervals_cover_the_truth():
    rng = random.Random(8)
    covered = 0
    for _ in range(600):
        centres = [rng.betavariate(2, 2) for _ in range(60)]
        found = clustered_interval([[0.5 * c + 0.5 * rng.random() for _ in range(4)] for c in centres])
        covered += found.low <= 0.5 <= found.high
    assert 0.925 <= covered / 600 <= 0.985


@pytest.mark.parametrize("num_problems", [20, 100])
def test_intervals_of_scores_near_one_cover_the_truth(num_problems: int):
    """Nearly all problems have the same high score, 5 % a low one: what a hacked VerifyRM pays."""
    rng = random.Random(10)
    covered = 0
    for _ in range(400):
        scores = [[0.01 if rng.random() < 0.05 else 0.99 + 0.001 * rng.random()] for _ in range(num_problems)]
        found = clustered_interval(scores)
        covered += found.low <= 0.05 * 0.01 + 0.95 * 0.9905 <= found.high
    assert covered / 400 >= 0.92


def test_the_interval_of_a_difference_is_newcombes_published_example():
    """Newcombe 1998, table II: 56/70 - 48/80 = .2, method 10 gives (.0524, .3339)."""
    before = clustered_interval([[1.0]] * 48 + [[0.0]] * 32)
    after = clustered_interval([[1.0]] * 56 + [[0.0]] * 14)
    found = difference_interval(before, after)
    assert (found.value, found.low, found.high) == pytest.approx((0.2, 0.0524, 0.3339), abs=1e-4)
    assert found.count == 70


def test_a_difference_of_certain_values_is_certain():
    sure = Interval(value=0.5, low=0.5, high=0.5, count=3)
    assert difference_interval(sure, sure) == Interval(value=0.0, low=0.0, high=0.0, count=3)


def test_the_mean_of_independent_estimates_is_narrower_than_each():
    """(.2 + .6) / 2 = .4; half widths .06 and .08 give sqrt(.0036 + .0064) / 2 = .05."""
    found = mean_of_independent(
        [
            Interval(value=0.2, low=0.14, high=0.26, count=30),
            Interval(value=0.6, low=0.52, high=0.68, count=20),
        ]
    )
    assert (found.value, found.low, found.high) == pytest.approx((0.4, 0.35, 0.45))
    assert found.count == 50
    with pytest.raises(DataError, match="a mean of estimates needs one"):
        mean_of_independent([])


def test_runs_that_differ_widen_an_interval_and_one_run_does_not():
    """Runs .4 and .6: s = .1 sqrt(2), s / sqrt(2) = .1, t(1) = 12.706: 1.2706 in quadrature with .05."""
    plain = Interval(value=0.5, low=0.45, high=0.55, count=100)
    assert widened_by_runs(plain, [0.5]) == plain
    assert widened_by_runs(plain, [0.5, 0.5, 0.5]) == plain
    found = widened_by_runs(plain, [0.4, 0.6], possible=(-9, 9))
    assert found.high - found.value == pytest.approx((1.2706205**2 + 0.05**2) ** 0.5)
    assert found.value - found.low == pytest.approx(found.high - found.value)


def test_three_runs_widen_by_their_deviation_over_the_root_of_three():
    """Runs .4 .5 .6: s = .1, t(2) * .1 / sqrt(3) = 4.302653 * .057735 = .248414 in quadrature with .05."""
    found = widened_by_runs(Interval(value=0.5, low=0.45, high=0.55, count=100), [0.4, 0.5, 0.6])
    assert (found.low, found.high) == pytest.approx((0.5 - 0.253396, 0.5 + 0.253396), abs=1e-6)


def test_a_widened_interval_ends_where_values_do() -> None:
    share = widened_by_runs(Interval(value=0.06, low=0.04, high=0.09, count=9), [0, 0.18], possible=(0, 1))
    assert (share.low, share.high) == (0, 1)
    change = widened_by_runs(Interval(value=-0.5, low=-0.6, high=-0.4, count=9), [-0.9, -0.1])
    assert (change.low, change.high) == (-1, 1)


def test_widened_intervals_cover_what_runs_and_problems_vary_by():
    """2,000 drawn layouts of 4 runs and 50 problems, with effects of both: the true mean is covered."""
    rng = random.Random(0)
    covered = 0
    for _ in range(2000):
        problems = [rng.gauss(0, 0.15) for _ in range(50)]
        runs = [rng.gauss(0, 0.05) for _ in range(4)]
        shares = [[min(max(0.5 + run + problem, 0), 1) for run in runs] for problem in problems]
        pooled = clustered_interval(shares)
        by_run = [sum(row[place] for row in shares) / 50 for place in range(4)]
        found = widened_by_runs(pooled, by_run)
        covered += found.low <= 0.5 <= found.high
    assert covered / 2000 > 0.94


def test_a_weighted_total_adds_values_and_the_squares_of_its_distances() -> None:
    """Down: the root of (10 x 0.3)^2 + (20 x 0.2)^2 = 25; up: of (10 x 0.12)^2 + (20 x 0.025)^2 = 1.69."""
    parts = [
        (Interval(value=0.5, low=0.2, high=0.62, count=7), 10.0),
        (Interval(value=0.4, low=0.2, high=0.425, count=5), 20.0),
    ]
    total = weighted_total(parts)
    assert (total.value, total.low, total.high) == pytest.approx((13, 8, 14.3))
    assert total.count == 12


def test_rounding_leaves_no_bound_outside_of_what_is_possible() -> None:
    for values in ([0.0, 6e-10], [1.0, 1 - 6e-10]):
        found = clustered_interval([[value] for value in values])
        assert 0 <= found.low <= found.value <= found.high <= 1
    assert clustered_interval([[0.0], [0.0, 5.958128983523449e-10]]).low == 0
