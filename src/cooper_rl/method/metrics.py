"""A classifier's scores against labels: AUROC, ROC points, confusion counts, calibration (row 14)."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from cooper_rl.errors import DataError
from cooper_rl.method.intervals import clustered_interval, kish_size, wilson_bounds
from cooper_rl.schema.reports import BinaryScores, Interval, ReliabilityBin

THRESHOLD = 0.5
"""VerifyRM says "correct" above it."""

NUM_BINS = 10
"""Of the reliability data."""

ROUNDING = 1e-9
"""Differences of shares this small are none: .27 - .24 is above .03 in floating point."""
MAX_ROC_POINTS = 100

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
    hits = [float(is_right) for is_right in right_verdicts(labels, scores)]
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


def right_verdicts(labels: Sequence[int], scores: Sequence[float]) -> list[bool]:
    """True for each score that is on its label's side of the threshold."""
    return [(score > THRESHOLD) == (label == 1) for label, score in zip(labels, scores, strict=True)]


def reliability_bins(labels: Sequence[int], scores: Sequence[float]) -> list[ReliabilityBin]:
    """Mean score and share of correct examples per tenth of the score; empty bins are left out."""
    # A score of exactly 1 belongs to the last bin, not to one of its own.
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


def score_intervals(
    labels: Sequence[int], scores: Sequence[float], *, problems: Sequence[str]
) -> dict[str, Interval]:
    """95 % intervals of precision, recall, f1 and auroc over problems; what is undefined is left out.

    Precision and recall are means of true positives over what is said to be, or is, correct. So is their mean
    J over both together, and F1 = 2J / (1 + J). The calibration error has no interval: it cannot be below 0,
    and bins of few examples alone put it above.
    """
    rows = [
        (problem, label == 1, score > THRESHOLD)
        for problem, label, score in zip(problems, labels, scores, strict=True)
    ]
    members = {
        "precision": [row for row in rows if row[2]],
        "recall": [row for row in rows if row[1]],
        "f1": [row for row in rows if row[1] or row[2]],
    }
    found: dict[str, Interval] = {}
    for name, chosen in members.items():
        if chosen:
            hits = [float(is_correct and is_accepted) for _, is_correct, is_accepted in chosen]
            found[name] = clustered_interval(_cluster(hits, [problem for problem, _, _ in chosen]))
    if "f1" in found:
        shares = found["f1"].model_dump(exclude={"count"})
        f1 = {name: 2 * share / (1 + share) for name, share in shares.items()}
        found["f1"] = found["f1"].model_copy(update=f1)
    area = _auroc_interval(labels, scores, problems)
    return found if area is None else found | {"auroc": area}


def _auroc_interval(
    labels: Sequence[int], scores: Sequence[float], problems: Sequence[str]
) -> Interval | None:
    """Wilson's interval at the effective size A(1-A)/v, where v is AUROC's variance over problems.

    v = k/(k-1) * sum of squared influences of k problems (Obuchowski 1997), with half a problem of each class
    added, as likely all above as all below: near A = 1 a few problems decide v and it comes out too small.
    The size is at least what the problems of a class are worth (`kish_size`), of the class where that is
    less, since v <= A(1-A) over the smaller number of examples (Birnbaum and Klose 1957).
    """
    area = auroc(labels, scores)
    if area is None:
        return None
    values, is_positive = np.asarray(scores, dtype=float), np.asarray(labels) == 1
    # Numbers and not an array of texts, whose every element is as long as the longest one.
    numbers = {problem: number for number, problem in enumerate(sorted(set(problems)))}
    place = np.array([numbers[problem] for problem in problems])
    num_problems = len(numbers)
    influence: _Floats = np.zeros(num_problems)
    added, least = 0.0, float(num_problems)
    for members, sign in ((is_positive, 1), (~is_positive, -1)):
        others: _Floats = np.sort(sign * values[~members])
        own: _Floats = sign * values[members]
        above = (np.searchsorted(others, own, "left") + np.searchsorted(others, own, "right")) / 2
        share = (above / len(others) - area) / len(own)
        influence += np.bincount(place[members], weights=share, minlength=num_problems)
        sizes = np.unique(place[members], return_counts=True)[1].tolist()
        worth = kish_size(sizes)
        added += (area**2 + (1 - area) ** 2) / 4 / (worth * len(sizes))
        least = min(least, worth)
    size = least
    if num_problems > 1:
        variance = (float((influence**2).sum()) + added) * num_problems / (num_problems - 1)
        size = max(area * (1 - area) / variance, size)
    low, high = wilson_bounds(area, size)
    return Interval(value=area, low=low, high=high, count=num_problems)


def _f1(counts: dict[str, int]) -> float | None:
    total = 2 * counts["true_positive"] + counts["false_positive"] + counts["false_negative"]
    return 2 * counts["true_positive"] / total if total else None


def confusion_counts(labels: Sequence[int], scores: Sequence[float]) -> dict[str, int]:
    """`true_positive`, `false_positive`, `true_negative`, `false_negative` at score > 0.5."""
    counts = {"true_positive": 0, "false_positive": 0, "true_negative": 0, "false_negative": 0}
    for score, is_hit in zip(scores, right_verdicts(labels, scores), strict=True):
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


def roc_points(labels: Sequence[int], scores: Sequence[float]) -> list[tuple[float, float, float]]:
    """(false positive rate, true positive rate, threshold) of "score >= threshold", from (0, 0) to (1, 1).

    One point per distinct score; more than 100 are thinned evenly along the curve. Empty when only
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
    if len(threshold) > MAX_ROC_POINTS:
        # The rates' sum rises from 0 to 2 along the curve; rounding may leave its end just below 2.
        kept = np.unique(np.searchsorted(true_rate + false_rate, np.linspace(0, 2, MAX_ROC_POINTS) - 1e-9))
    return [(float(false_rate[i]), float(true_rate[i]), float(threshold[i])) for i in kept]


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
