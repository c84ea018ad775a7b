"""95 % intervals of means over problems and of their differences (row 14).

An interval never claims more than the problems behind it allow: samples of one problem are not independent,
and 40 of 40 is not certainty. Nothing corrects for looking often.
"""

import math
from collections.abc import Mapping, Sequence

from cooper_rl.errors import DataError
from cooper_rl.schema.reports import Interval

_Z = 1.959963984540054  # 97.5 % quantile of the normal distribution

# 97.5 % quantiles of Student's t for 1 to 9 degrees of freedom, where `t_quantile`'s expansion is coarse.
_T_QUANTILES = (12.706205, 4.302653, 3.182446, 2.776445, 2.570582, 2.446912, 2.364624, 2.306004, 2.262157)


def clustered_interval(values_per_problem: Sequence[Sequence[float]]) -> Interval:
    """Mean over all samples with a 95 % interval in which a problem, not a sample, is the independent unit.

    With k problems, N samples x_ij in [0, 1] and their mean p, the clustered variance of p is
        v = k/(k-1) * sum_i (sum_j (x_ij - p))^2 / N^2
    (Liang and Zeger 1986; for evaluations Miller 2024, arXiv 2411.00640, section 2.2). The interval is
    Wilson's score interval (1927) at the effective size p(1-p)/v. Values that are no outcomes have one too,
    since p(1-p) bounds the variance of anything in [0, 1].
    The effective size is at least N^2 / sum_i n_i^2 for problems of n_i samples (`kish_size`), which is k
    where all have as many. So the interval has a width at p = 0 or 1 too (as Korn and Graubard 1998 for the
    exact interval). Of 0/1 outcomes it is at most N. Near 0 and 1 a few problems decide v and it comes out
    too small (coverage down to 60 % in simulation), so half an all-correct and half an all-wrong problem of
    mean squared size are added to its sum, as Jeffreys adds half an outcome of each kind.

    Raises:
        DataError: no samples, or a value that is not in [0, 1].
    """
    problems = [[float(value) for value in problem] for problem in values_per_problem]
    values = [value for problem in problems for value in problem]
    wrong = next((value for value in values if not 0 <= value <= 1), None)
    if not values or wrong is not None:
        found = "there are none" if wrong is None else f"{wrong} is not one"
        raise DataError(
            f"an interval needs values in [0, 1] and {found}; check the evaluation that made them"
        )
    mean = math.fsum(values) / len(values)
    squares = math.fsum(math.fsum(value - mean for value in problem) ** 2 for problem in problems)
    is_outcome = all(value in (0.0, 1.0) for value in values)
    size = _effective_size(
        mean, squares, [len(problem) for problem in problems], most=len(values) if is_outcome else math.inf
    )
    low, high = wilson_bounds(mean, size)
    return Interval(value=mean, low=low, high=high, count=len(problems))


def paired_difference(
    before: Mapping[str, Sequence[float]], after: Mapping[str, Sequence[float]]
) -> Interval:
    """Mean change of the same problems with a 95 % t interval over problems.

    A problem weighs as much as it has samples afterwards, as in `clustered_interval`. Narrower than
    `difference_interval` as far as a problem that was hard before is hard afterwards. Where problems
    change all alike that is no certainty: the sum of squares is at least that of half a problem of mean size,
    as likely all up as all down.

    Args:
        before: Problem id -> outcomes of its samples, in [0, 1].
        after: The same problems.

    Raises:
        DataError: the problems differ, or there are fewer than two.
    """
    if before.keys() != after.keys() or len(before) < 2:
        raise DataError(
            f"a paired difference needs the same two problems or more on both sides, not {len(before)} and "
            f"{len(after)}; compare evaluations of the same held-out file"
        )
    sizes = [len(after[name]) for name in before]
    changes = [
        math.fsum(after[name]) / size - math.fsum(values) / len(values)
        for (name, values), size in zip(before.items(), sizes, strict=True)
    ]
    count, total = len(changes), sum(sizes)
    mean = math.fsum(size * change for size, change in zip(sizes, changes, strict=True)) / total
    squares = math.fsum((size * (change - mean)) ** 2 for size, change in zip(sizes, changes, strict=True))
    squares = max(squares, (total / count) ** 2 * (1 + mean**2) / 2)
    half = t_quantile(count - 1) * math.sqrt(squares * count / (count - 1)) / total
    return Interval(value=mean, low=max(-1.0, mean - half), high=min(1.0, mean + half), count=count)


def difference_interval(before: Interval, after: Interval) -> Interval:
    """`after - before` with a 95 % interval made from both intervals (Newcombe 1998, method 10; MOVER).

    Takes the two as independent. Two evaluations on the same problems are positively correlated as a rule;
    then the interval is wider than it had to be.
    """
    value = after.value - before.value
    down = math.hypot(after.value - after.low, before.high - before.value)
    up = math.hypot(after.high - after.value, before.value - before.low)
    return Interval(value=value, low=value - down, high=value + up, count=min(before.count, after.count))


def mean_of_independent(estimates: Sequence[Interval]) -> Interval:
    """Mean of independent estimates, each with the same weight; 95 % interval from theirs (MOVER, Zou 2008).

    Raises:
        DataError: there are none.
    """
    if not estimates:
        raise DataError("a mean of estimates needs one at least; check the evaluation that made them")
    size = len(estimates)
    value = math.fsum(each.value for each in estimates) / size
    down = math.hypot(*(each.value - each.low for each in estimates)) / size
    up = math.hypot(*(each.high - each.value for each in estimates)) / size
    count = sum(each.count for each in estimates)
    return Interval(value=value, low=value - down, high=value + up, count=count)


def weighted_total(estimates: Sequence[tuple[Interval, float]]) -> Interval:
    """Sum of independent estimates, each times its size; 95 % interval from theirs (MOVER, Zou 2008).

    Args:
        estimates: (share, how many it is a share of); one at least.
    """
    value = math.fsum(size * each.value for each, size in estimates)
    down = math.hypot(*(size * (each.value - each.low) for each, size in estimates))
    up = math.hypot(*(size * (each.high - each.value) for each, size in estimates))
    count = sum(each.count for each, _ in estimates)
    return Interval(value=value, low=value - down, high=value + up, count=count)


def widened_by_runs(
    estimate: Interval, by_run: Sequence[float], *, possible: tuple[float, float] = (-1.0, 1.0)
) -> Interval:
    """An interval over problems, widened by how much the runs behind the estimate differ.

    With S runs of standard deviation s, t(S-1) * s / sqrt(S) is added to either side in quadrature: problems
    and runs are both drawn, and independently. The runs' differences hold some of the problems' noise too, so
    the result is wide rather than narrow. One run says nothing of runs, and changes nothing.

    Args:
        estimate: Over problems, pooled over the runs.
        by_run: The same quantity for each run.
        possible: The least and the greatest value that there can be; of differences of shares by default.
    """
    size = len(by_run)
    if size < 2:
        return estimate
    mean = math.fsum(by_run) / size
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in by_run) / (size - 1))
    half = t_quantile(size - 1) * deviation / math.sqrt(size)
    return Interval(
        value=estimate.value,
        low=max(possible[0], estimate.value - math.hypot(estimate.value - estimate.low, half)),
        high=min(possible[1], estimate.value + math.hypot(estimate.high - estimate.value, half)),
        count=estimate.count,
    )


def wilson_bounds(mean: float, size: float) -> tuple[float, float]:
    """Low and high of Wilson's 95 % score interval (1927) of a share of `size` independent outcomes."""
    scale = 1 + _Z**2 / size
    centre = (mean + _Z**2 / (2 * size)) / scale
    half = _Z * math.sqrt(mean * (1 - mean) / size + _Z**2 / (4 * size**2)) / scale
    # At 0 and 1 the bound is exact; rounding must leave it neither inside nor, near them, outside.
    low, high = max(0.0, centre - half), min(1.0, centre + half)
    return (0.0 if mean == 0 else low), (1.0 if mean == 1 else high)


def kish_size(sizes: Sequence[int]) -> float:
    """Independent outcomes that problems of these sizes are worth if all samples of a problem are equal."""
    return sum(sizes) ** 2 / sum(size**2 for size in sizes)


def _effective_size(mean: float, squares: float, sizes: Sequence[int], *, most: float) -> float:
    """Independent outcomes that would give the clustered variance; see `clustered_interval`."""
    count, least = len(sizes), kish_size(sizes)
    if count == 1:
        return 1
    total = sum(sizes)
    # The mean of squared sizes: half a problem of mean size would be lost beside one of a hundred samples.
    added = sum(size**2 for size in sizes) / count * (mean**2 + (1 - mean) ** 2) / 2
    variance = (squares + added) / total**2 * count / (count - 1)
    return min(max(mean * (1 - mean) / variance, least), most)


def t_quantile(degrees: int) -> float:
    """97.5 % quantile of Student's t (expansion: Abramowitz and Stegun 26.7.5), within 2e-4."""
    if degrees <= len(_T_QUANTILES):
        return _T_QUANTILES[degrees - 1]
    z = _Z
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return z + sum(term / degrees ** (power + 1) for power, term in enumerate(terms))
