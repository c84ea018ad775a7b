"""AUROC, ROC points, confusion counts and calibration against numbers worked out by hand."""

import itertools
import random

import numpy as np
import pytest

from cooper_rl.core.metrics import (
    auroc,
    binary_scores,
    bootstrap_intervals,
    calibration_error,
    confusion_counts,
    reliability_bins,
    roc_points,
)
from cooper_rl.errors import DataError


def test_auroc_of_a_small_case_with_a_tie_is_the_hand_worked_number():
    """Positives .8 .5, negatives .5 .2: pairs .8>.5, .8>.2, .5=.5 (one half), .5>.2 -> 3.5 / 4."""
    assert auroc([1, 1, 0, 0], [0.8, 0.5, 0.5, 0.2]) == 3.5 / 4


def test_auroc_agrees_with_counting_all_pairs():
    rng = random.Random(0)
    for _ in range(50):
        labels = [0, 1, *(rng.randint(0, 1) for _ in range(rng.randint(0, 40)))]
        scores = [rng.randint(0, 8) / 8 for _ in labels]
        positives = [s for s, label in zip(scores, labels, strict=True) if label]
        negatives = [s for s, label in zip(scores, labels, strict=True) if not label]
        wins = sum((p > n) + 0.5 * (p == n) for p in positives for n in negatives)
        assert auroc(labels, scores) == pytest.approx(wins / (len(positives) * len(negatives)), abs=1e-12)


def test_auroc_of_one_class_is_none_and_its_roc_is_empty():
    assert auroc([1, 1], [0.2, 0.9]) is None
    assert roc_points([0, 0], [0.2, 0.9]) == []


def test_roc_points_take_all_equal_scores_or_none():
    """Scores .9(1) .5(1) .5(0) .1(0): the tie at .5 is one diagonal move, not a corner."""
    assert roc_points([1, 1, 0, 0], [0.9, 0.5, 0.5, 0.1]) == [
        (0.0, 0.0, 1.0), (0.0, 0.5, 0.9), (0.5, 1.0, 0.5), (1.0, 1.0, 0.1),
    ]  # fmt: skip


def test_roc_points_are_thinned_and_keep_both_ends_and_the_area():
    rng = random.Random(1)
    labels = [rng.randint(0, 1) for _ in range(5000)]
    scores = [0.5 * rng.random() + 0.4 * label * rng.random() for label in labels]
    points = roc_points(labels, scores)
    assert 50 < len(points) <= 100
    assert points[0][:2] == (0.0, 0.0)
    assert points[-1][:2] == (1.0, 1.0)
    area = sum((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in itertools.pairwise(points))
    assert area == pytest.approx(auroc(labels, scores), abs=2e-3)


def test_confusion_counts_treat_exactly_one_half_as_incorrect():
    counts = confusion_counts([1, 0, 1, 0, 1], [0.9, 0.6, 0.5, 0.1, 0.51])
    assert counts == {"true_positive": 2, "false_positive": 1, "true_negative": 1, "false_negative": 1}


def test_binary_scores_of_a_small_case_are_the_hand_worked_numbers():
    """Counts as above: accuracy 3/5, majority 3/5, precision 2/3, recall 2/3; 5 of 6 pairs in order."""
    found = binary_scores([1, 0, 1, 0, 1], [0.9, 0.6, 0.5, 0.1, 0.51])
    assert (found.num_examples, found.accuracy.value, found.majority_accuracy) == (5, 0.6, 0.6)
    assert found.precision == pytest.approx(2 / 3)
    assert found.recall == pytest.approx(2 / 3)
    assert found.auroc == pytest.approx(4 / 6)


def test_binary_scores_leave_out_what_is_undefined():
    found = binary_scores([0, 0], [0.1, 0.2])
    assert (found.precision, found.recall, found.auroc) == (None, None, None)


def test_completions_of_one_problem_are_one_cluster_of_the_accuracy():
    labels, scores = [1] * 8, [0.9] * 4 + [0.1] * 4
    problems = ["a"] * 4 + ["b"] * 4
    apart = binary_scores(labels, scores).accuracy
    together = binary_scores(labels, scores, problems=problems).accuracy
    assert (apart.count, together.count) == (8, 2)
    assert together.high - together.low > apart.high - apart.low


def test_no_examples_and_a_broken_score_are_data_errors():
    with pytest.raises(DataError, match="no labelled examples to score a classifier on; give a file"):
        binary_scores([], [])
    with pytest.raises(DataError, match="score 1 is nan; VerifyRM's weights are damaged"):
        binary_scores([1, 0], [0.5, float("nan")])


def test_calibration_and_f1_of_a_small_case_are_the_hand_worked_numbers():
    """Bins [.1, .2): mean .15, 1 of 2 correct; [.9, 1]: mean .95, 1 of 2: ECE = (.35 + .45) / 2 = .40.

    Above .5: one right, one wrong, one missed: F1 = 2 / (2 + 1 + 1) = .5.
    """
    bins = reliability_bins([0, 1, 1, 0], [0.1, 0.2 - 1e-9, 1.0, 0.9])
    assert [(found.low, found.high, found.count) for found in bins] == [(0.1, 0.2, 2), (0.9, 1.0, 2)]
    assert calibration_error(bins) == pytest.approx(0.40)
    found = binary_scores([0, 1, 1, 0], [0.1, 0.2 - 1e-9, 1.0, 0.9])
    assert (found.f1, found.ece) == (0.5, pytest.approx(0.40))


def test_bootstrap_intervals_hold_the_estimate_and_count_problems():
    labels = [place % 2 for place in range(40)]
    scores = [0.9 if label else (0.8 if place % 7 == 0 else 0.1) for place, label in enumerate(labels)]
    problems = [str(place // 2) for place in range(40)]
    found = bootstrap_intervals(labels, scores, problems=problems, rng=np.random.default_rng(0))
    assert set(found) == {"precision", "recall", "f1", "auroc", "ece"}
    for interval in found.values():
        assert interval.low <= interval.value <= interval.high
        assert interval.count == 20
    assert found["recall"].low == found["recall"].high == 1.0
    assert found["precision"].low < found["precision"].value < found["precision"].high


def test_bootstrap_intervals_leave_out_what_one_class_cannot_say():
    found = bootstrap_intervals([0, 0], [0.1, 0.2], problems=["a", "b"], rng=np.random.default_rng(0))
    assert set(found) == {"ece"}
