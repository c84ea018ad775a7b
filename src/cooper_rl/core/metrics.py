"""What a number from an evaluation is worth: intervals, AUROC, ROC points, confusion counts (row 14).

An interval never claims more than the problems behind it allow: samples of one problem are not independent,
and 40 of 40 is not certainty. Deliberately left out: tests of significance and corrections for looking often.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from cooper_rl.errors import DataError
from cooper_rl.schema import BinaryScores, Interval, ReliabilityBin

THRESHOLD = 0.5
"""VerifyRM says "correct" above it."""

NUM_BINS = 10
"""Of the reliability data."""

_Z = 1.959963984540054  # 97.5 % quantile of the normal distribution

# 97.5 % quantiles of Student's t for 1 to 9 degrees of freedom, where `_t_quantile`'s expansion is coarse.
_T_QUANTILES = (12.706205, 4.302653, 3.182446, 2.776445, 2.570582, 2.446912, 2.364624, 2.306004, 2.262157)

_Floats = npt.NDArray[np.float64]


def binary_scores(
    labels: Sequence[int], scores: Sequence[float], *, problems: Sequence[str] | None = None
) -> BinaryScores:
    """A classifier's scores in [0, 1] against 0/1 labels.

    Args:
        labels: 1 = correct.
        scores: One per label, in the same order.
        problems: What each example belongs to (its question); examples of one problem are one cluster of
            the accuracy's interval. None: all examples are independent.

    Raises:
        DataError: no examples, or a score that is not finite.
    """
    _check_scores(labels, scores)
    hits = [float((score > THRESHOLD) == (label == 1)) for label, score in zip(labels, scores, strict=True)]
    counts = confusion_counts(labels, scores)
    positives = counts["true_positive"] + counts["false_negative"]
    predicted = counts["true_positive"] + counts["false_positive"]
    return BinaryScores(
        num_examples=len(labels),
        accuracy=clustered_interval(_cluster(hits, problems)),
        majority_accuracy=max(positives, len(labels) - positives) / len(labels),
        precision=counts["true_positive"] / predicted if predicted else None,
        recall=counts["true_positive"] / positives if positives else None,
        auroc=auroc(labels, scores),
        f1=_f1(counts),
        ece=calibration_error(reliability_bins(labels, scores)),
    )


def reliability_bins(labels: Sequence[int], scores: Sequence[float]) -> list[ReliabilityBin]:
    """Mean score and share of correct examples per tenth of the score; empty bins are left out."""
    places = np.minimum((np.asarray(scores, dtype=float) * NUM_BINS).astype(int), NUM_BINS - 1)
    truth, values = np.asarray(labels, dtype=float), np.asarray(scores, dtype=float)
    return [
        ReliabilityBin(
            low=place / NUM_BINS,
            high=(place + 1) / NUM_BINS,
            count=int((places == place).sum()),
            mean_score=float(values[places == place].mean()),
            correct_fraction=float(truth[places == place].mean()),
        )
        for place in range(NUM_BINS)
        if (places == place).any()
    ]


def calibration_error(bins: Sequence[ReliabilityBin]) -> float:
    """Expected calibration error (Naeini et al. 2015): mean |score - share of correct|, weighted by size."""
    total = sum(found.count for found in bins)
    return sum(found.count * abs(found.mean_score - found.correct_fraction) for found in bins) / total


def bootstrap_intervals(
    labels: Sequence[int],
    scores: Sequence[float],
    *,
    problems: Sequence[str],
    rng: np.random.Generator,
    num_draws: int = 200,
) -> dict[str, Interval]:
    """95 % percentile intervals of precision, recall, f1, auroc and ece, redrawing whole problems.

    A quantity that is undefined for all examples, or in more than half of the draws, is left out.
    """
    truth, values = np.asarray(labels), np.asarray(scores, dtype=float)
    clusters: dict[str, list[int]] = {}
    for row, problem in enumerate(problems):
        clusters.setdefault(problem, []).append(row)
    rows = list(clusters.values())
    num_problems = len(rows)
    drawn: dict[str, list[float]] = {}
    for _ in range(num_draws):
        chosen: list[int] = [int(place) for place in rng.integers(num_problems, size=num_problems)]
        picked = [row for place in chosen for row in rows[place]]
        for name, value in _point_values(truth[picked], values[picked]).items():
            drawn.setdefault(name, []).append(value)
    found: dict[str, Interval] = {}
    for name, value in _point_values(truth, values).items():
        if len(drawn.get(name, [])) > num_draws / 2:
            low, high = np.quantile(drawn[name], [0.025, 0.975])
            found[name] = Interval(value=value, low=float(low), high=float(high), count=num_problems)
    return found


def _point_values(labels: Any, scores: Any) -> dict[str, float]:
    counts = confusion_counts(list(labels), list(scores))
    positives = counts["true_positive"] + counts["false_negative"]
    predicted = counts["true_positive"] + counts["false_positive"]
    values = {
        "precision": counts["true_positive"] / predicted if predicted else None,
        "recall": counts["true_positive"] / positives if positives else None,
        "f1": _f1(counts),
        "auroc": auroc(labels, scores),
        "ece": calibration_error(reliability_bins(labels, scores)),
    }
    return {name: value for name, value in values.items() if value is not None}


def _f1(counts: dict[str, int]) -> float | None:
    total = 2 * counts["true_positive"] + counts["false_positive"] + counts["false_negative"]
    return 2 * counts["true_positive"] / total if total else None


def confusion_counts(labels: Sequence[int], scores: Sequence[float]) -> dict[str, int]:
    """`true_positive`, `false_positive`, `true_negative`, `false_negative` at score > 0.5."""
    counts = {"true_positive": 0, "false_positive": 0, "true_negative": 0, "false_negative": 0}
    for label, score in zip(labels, scores, strict=True):
        is_hit = (score > THRESHOLD) == (label == 1)
        counts[f"{'true' if is_hit else 'false'}_{'positive' if score > THRESHOLD else 'negative'}"] += 1
    return counts


def auroc(labels: Sequence[int], scores: Sequence[float]) -> float | None:
    """Probability that a positive's score is above a negative's, a tie counting one half.

    None when only one class is present. From the rank sum (Mann and Whitney 1947), tied scores sharing
    their mean rank.
    """
    is_positive = np.asarray(labels) == 1
    num_positive = int(is_positive.sum())
    num_negative = len(labels) - num_positive
    if num_positive == 0 or num_negative == 0:
        return None
    _, place, counts = np.unique(np.asarray(scores, dtype=float), return_inverse=True, return_counts=True)
    mean_ranks = np.cumsum(counts) - (counts - 1) / 2
    rank_sum = float(mean_ranks[place][is_positive].sum())
    return (rank_sum - num_positive * (num_positive + 1) / 2) / (num_positive * num_negative)


def roc_points(
    labels: Sequence[int], scores: Sequence[float], *, max_points: int = 100
) -> list[tuple[float, float, float]]:
    """(false positive rate, true positive rate, threshold) of "score >= threshold", from (0, 0) to (1, 1).

    One point per distinct score; more than `max_points` are thinned evenly along the curve. Empty when only
    one class is present. The origin carries threshold 1, since JSON has no infinity.
    """
    is_positive = np.asarray(labels) == 1
    num_positive = int(is_positive.sum())
    num_negative = len(labels) - num_positive
    if num_positive == 0 or num_negative == 0:
        return []
    order = np.argsort(-np.asarray(scores, dtype=float), kind="stable")
    ordered: _Floats = np.asarray(scores, dtype=float)[order]
    # Only the last of equal scores is a point: a threshold takes all of them or none.
    ends = np.flatnonzero(np.append(ordered[1:] != ordered[:-1], True))
    true_rate = np.append(0.0, np.cumsum(is_positive[order])[ends] / num_positive)
    false_rate = np.append(0.0, np.cumsum(~is_positive[order])[ends] / num_negative)
    threshold = np.append(1.0, ordered[ends])
    kept: Any = np.arange(len(threshold))
    if len(threshold) > max_points:
        kept = np.unique(np.searchsorted(true_rate + false_rate, np.linspace(0, 2, max_points) - 1e-9))
    return [(float(false_rate[i]), float(true_rate[i]), float(threshold[i])) for i in kept]


def clustered_interval(values_per_problem: Sequence[Sequence[float]]) -> Interval:
    """Mean over all samples with a 95 % interval in which a problem, not a sample, is the independent unit.

    With k problems, N samples x_ij in [0, 1] and their mean p, the clustered variance of p is
        v = k/(k-1) * sum_i (sum_j (x_ij - p))^2 / N^2
    (Liang and Zeger 1986; for evaluations Miller 2024, arXiv 2411.00640, section 2.2).
    0/1 outcomes: Wilson's score interval (1927) at the effective sample size n = p(1-p)/v, kept within
    [k, N], and n = k at p = 0 or 1 so that it has a width there too (as Korn and Graubard 1998 for the
    exact interval). Near 0 and 1 a few problems decide v and it comes out too small (coverage down to 88 %
    in simulation), so half an all-correct and half an all-wrong problem of mean size are added to its sum,
    as Jeffreys adds half an outcome of each kind.
    Other values: p -+ t(k-1) * sqrt(v), cut to [0, 1]. One problem, or problems that are all equal: Wilson
    at n = k, since p(1-p) bounds the variance of anything in [0, 1].

    Raises:
        DataError: no samples, or a value that is not in [0, 1].
    """
    problems = [[float(value) for value in problem] for problem in values_per_problem if len(problem)]
    values = [value for problem in problems for value in problem]
    wrong = next((value for value in values if not 0 <= value <= 1), None)
    if not values or wrong is not None:
        found = "there are none" if wrong is None else f"{wrong} is not one"
        raise DataError(
            f"an interval needs values in [0, 1] and {found}; check the evaluation that made them"
        )
    mean = math.fsum(values) / len(values)
    squares = math.fsum(math.fsum(value - mean for value in problem) ** 2 for problem in problems)
    if all(value in (0.0, 1.0) for value in values):
        low, high = _wilson(mean, _effective_size(mean, squares, len(problems), num_samples=len(values)))
    elif len(problems) == 1 or squares < 1e-18:
        low, high = _wilson(mean, len(problems))
    else:
        error = math.sqrt(squares * len(problems) / (len(problems) - 1)) / len(values)
        half = _t_quantile(len(problems) - 1) * error
        low, high = max(0.0, mean - half), min(1.0, mean + half)
    return Interval(value=mean, low=low, high=high, count=len(problems))


def paired_difference(
    before: Mapping[str, Sequence[float]], after: Mapping[str, Sequence[float]]
) -> Interval:
    """Mean change of the same problems with a 95 % t interval over problems.

    Narrower than `difference_interval` as far as a problem that was hard before is hard afterwards.

    Args:
        before: Problem id -> outcomes of its samples.
        after: The same problems.

    Raises:
        DataError: the problems differ, or there are fewer than two.
    """
    if before.keys() != after.keys() or len(before) < 2:
        raise DataError(
            f"a paired difference needs the same two problems or more on both sides, not {len(before)} and "
            f"{len(after)}; compare evaluations of the same held-out file"
        )
    changes = [
        math.fsum(after[name]) / len(after[name]) - math.fsum(values) / len(values)
        for name, values in before.items()
    ]
    mean = math.fsum(changes) / len(changes)
    variance = math.fsum((change - mean) ** 2 for change in changes) / (len(changes) - 1)
    half = _t_quantile(len(changes) - 1) * math.sqrt(variance / len(changes))
    return Interval(value=mean, low=mean - half, high=mean + half, count=len(changes))


def difference_interval(before: Interval, after: Interval) -> Interval:
    """`after - before` with a 95 % interval made from both intervals (Newcombe 1998, method 10; MOVER).

    Takes the two as independent. Two evaluations on the same problems are positively correlated as a rule;
    then the interval is wider than it had to be.
    """
    value = after.value - before.value
    down = math.hypot(after.value - after.low, before.high - before.value)
    up = math.hypot(after.high - after.value, before.value - before.low)
    return Interval(value=value, low=value - down, high=value + up, count=min(before.count, after.count))


def _check_scores(labels: Sequence[int], scores: Sequence[float]) -> None:
    if not labels:
        raise DataError("no labelled examples to score a classifier on; give a file with at least one")
    for row, score in enumerate(scores):
        if not math.isfinite(score):
            raise DataError(
                f"score {row} is {score}; VerifyRM's weights are damaged, use an earlier checkpoint"
            )


def _cluster(values: Sequence[float], problems: Sequence[str] | None) -> list[list[float]]:
    if problems is None:
        return [[value] for value in values]
    clusters: dict[str, list[float]] = {}
    for value, problem in zip(values, problems, strict=True):
        clusters.setdefault(problem, []).append(value)
    return list(clusters.values())


def _effective_size(mean: float, squares: float, num_problems: int, *, num_samples: int) -> float:
    """Independent outcomes that would give the clustered variance; see `clustered_interval`."""
    if num_problems == 1 or mean in (0.0, 1.0):
        return num_problems
    added = (num_samples / num_problems) ** 2 * (mean**2 + (1 - mean) ** 2) / 2
    variance = (squares + added) / num_samples**2 * num_problems / (num_problems - 1)
    return min(max(mean * (1 - mean) / variance, num_problems), num_samples)


def _wilson(mean: float, size: float) -> tuple[float, float]:
    scale = 1 + _Z**2 / size
    centre = (mean + _Z**2 / (2 * size)) / scale
    half = _Z * math.sqrt(mean * (1 - mean) / size + _Z**2 / (4 * size**2)) / scale
    # At 0 and 1 the bound is exact; rounding must not leave it inside.
    return (0.0 if mean == 0 else centre - half), (1.0 if mean == 1 else centre + half)


def _t_quantile(degrees: int) -> float:
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
