"""AUROC, ROC points, confusion counts and calibration against numbers worked out by hand."""

import itertools
import random
import tracemalloc
from statistics import NormalDist

import numpy as np
import pytest

from cooper_rl.errors import DataError
from cooper_rl.method.metrics import (
    auroc,
    binary_scores,
    calibration_error,
    confusion_counts,
    reliability_bins,
    right_verdicts,
    roc_points,
    score_intervals,
)


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


def test_the_roc_of_one_negative_rises_before_it_goes_right() -> None:
    assert roc_points([1, 1, 0], [0.9, 0.5, 0.1]) == [
        (0.0, 0.0, 1.0), (0.0, 0.5, 0.9), (0.0, 1.0, 0.5), (1.0, 1.0, 0.1),
    ]  # fmt: skip
    assert roc_points([1, 1], [0.9, 0.5]) == []


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


def test_a_hundred_roc_points_are_all_kept():
    """99 scores and the origin; the moves along 98 negatives are shorter than a hundredth of the curve."""
    points = roc_points([1] + [0] * 98, [1 - place / 99 for place in range(99)])
    assert len(points) == 100


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


def test_bins_of_unequal_size_weigh_by_their_examples() -> None:
    """[.1, .2): .12 .14 .16, 1 of 3 correct, |.14 - 1/3|; [.8, .9): .85, correct, |.85 - 1|.

    ECE = (3 * .193333 + .15) / 4 = .1825.
    """
    bins = reliability_bins([0, 1, 0, 1], [0.12, 0.14, 0.16, 0.85])
    assert [found.count for found in bins] == [3, 1]
    assert [found.mean_score for found in bins] == pytest.approx([0.14, 0.85])
    assert [found.correct_fraction for found in bins] == pytest.approx([1 / 3, 1])
    assert calibration_error(bins) == pytest.approx(0.1825)


@pytest.mark.parametrize("scores", [[0.9], [0.9, 0.1, 0.1]])
def test_scores_of_other_examples_than_the_labels_are_refused(scores: list[float]) -> None:
    with pytest.raises(ValueError, match="zip"):
        right_verdicts([1, 0], scores)


def test_intervals_hold_the_estimate_and_what_is_always_right_is_not_certain():
    labels = [place % 2 for place in range(40)]
    scores = [0.9 if label else (0.8 if place % 7 == 0 else 0.1) for place, label in enumerate(labels)]
    problems = [str(place // 2) for place in range(40)]
    found = score_intervals(labels, scores, problems=problems)
    points = binary_scores(labels, scores)
    assert {name: interval.value for name, interval in found.items()} == {
        name: pytest.approx(getattr(points, name)) for name in ("precision", "recall", "f1", "auroc")
    }
    for interval in found.values():
        assert interval.low < interval.value <= interval.high
        assert interval.count == 20
    assert (found["recall"].value, found["recall"].high) == (1.0, 1.0)


def test_f1_is_over_what_is_correct_or_accepted():
    """2 of 3 accepted are correct, 2 of 3 correct are accepted, 4 problems are one or both: F1 = 4/6."""
    labels, scores = [1, 0, 1, 0, 1], [0.9, 0.6, 0.5, 0.1, 0.51]
    found = score_intervals(labels, scores, problems=list("abcde"))
    assert (found["f1"].value, found["f1"].count) == (pytest.approx(2 / 3), 4)


def test_forty_of_forty_have_the_intervals_of_a_share_of_their_problems():
    """20 of 20 by Wilson: low = 1 / (1 + 3.841459/20) = .838874; F1 = 2 * .838874 / 1.838874 = .912378."""
    labels, scores = [1] * 20 + [0] * 20, [0.9] * 20 + [0.1] * 20
    found = score_intervals(labels, scores, problems=[str(place) for place in range(40)])
    assert {name: interval.high for name, interval in found.items()} == dict.fromkeys(found, 1.0)
    lows = {name: pytest.approx(0.838874, abs=1e-6) for name in ("precision", "recall", "auroc")}
    assert {name: interval.low for name, interval in found.items()} == lows | {
        "f1": pytest.approx(0.912378, abs=1e-6)
    }


def test_the_interval_of_auroc_is_the_hand_worked_one():
    """Five positives each at .8 and .4, five negatives each at .6 and .2, 20 problems: A = .75.

    Every example ranks all or half of the other class right: influences -+ .25/10, squares 20 * .000625.
    Added: 2 * (.75^2 + .25^2)/4 / 10^2 = .003125, so v = 20/19 * .015625 = .0164474, and .1875/v = 11.4
    outcomes. By Wilson: centre (.75 + .168485)/1.336970 = .686990, half .226335.
    """
    labels = [1] * 10 + [0] * 10
    scores = [0.8] * 5 + [0.4] * 5 + [0.6] * 5 + [0.2] * 5
    found = score_intervals(labels, scores, problems=[str(row) for row in range(20)])["auroc"]
    assert (found.value, found.count) == (0.75, 20)
    assert (found.low, found.high) == pytest.approx((0.460655, 0.913325), abs=1e-5)


def test_the_interval_of_auroc_counts_a_tie_half() -> None:
    """Four of each class at one score, 8 problems: A = .5, every influence 0.

    Added: 2 * (.25 + .25)/4 / 4^2 = .015625, so v = 8/7 * .015625 = .0178571 and .25/v = 14 outcomes. By
    Wilson: .5 -+ .232008.
    """
    found = score_intervals([1] * 4 + [0] * 4, [0.7] * 8, problems=list("abcdefgh"))["auroc"]
    assert (found.value, found.low, found.high) == pytest.approx((0.5, 0.267992, 0.732008), abs=1e-5)


def test_one_problem_with_both_classes_is_one_outcome() -> None:
    """1 of 1 by Wilson: low = 1 / (1 + 3.841459) = .206549."""
    found = score_intervals([1, 0], [0.9, 0.1], problems=["a", "a"])["auroc"]
    assert (found.value, found.low, found.high) == pytest.approx((1, 0.206549, 1), abs=1e-6)


def test_auroc_of_problems_of_different_sizes_counts_what_they_are_worth() -> None:
    """Problems of 1, 1 and 4 positives and of 1 and 1 negatives, all in order: the size is the smaller of
    6^2 / 18 and 2, low = 1 / (1 + 3.841459/2). With 9 for the 4: 1 / (1 + 3.841459 * 83 / 11^2)."""
    for count, low in ((4, 0.342380), (9, 0.275099)):
        problems = ["a", "b", *["c"] * count, "d", "e"]
        labels = [1] * (2 + count) + [0, 0]
        found = score_intervals(labels, [0.9 * label for label in labels], problems=problems)["auroc"]
        assert (found.low, found.high) == (pytest.approx(low, abs=1e-6), 1.0)


def test_one_long_question_among_many_takes_no_memory_for_the_others() -> None:
    """An array of 200 texts of 100,000 characters has 80 MB."""
    problems = ["long " * 20_000, *(str(row) for row in range(199))]
    tracemalloc.start()
    try:
        score_intervals([0, 1] * 100, [row / 200 for row in range(200)], problems=problems)
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("problems", [["a"], ["a", "b", "c"]])
def test_problems_of_other_examples_than_the_scores_are_refused(problems: list[str]) -> None:
    with pytest.raises(ValueError, match="zip"):
        score_intervals([1, 0], [0.9, 0.1], problems=problems)
    with pytest.raises(ValueError, match="zip"):
        binary_scores([1, 0], [0.9, 0.1], problems=problems)


@pytest.mark.parametrize(("area", "num_samples"), [(0.98, 50), (0.9, 30), (0.8, 50)])
def test_95_percent_or_more_of_the_intervals_of_auroc_cover_the_truth(area, num_samples):
    """Normal scores of both classes, apart so that a positive's is above with that probability."""
    rng, covered = np.random.default_rng(3), 0
    apart = NormalDist().inv_cdf(area) * 2**0.5
    labels, problems = [1] * num_samples + [0] * num_samples, [str(row) for row in range(2 * num_samples)]
    for _ in range(300):
        scores = rng.normal(size=2 * num_samples) + apart * np.asarray(labels)
        found = score_intervals(labels, list(scores), problems=problems)["auroc"]
        covered += found.low <= area <= found.high
    assert covered / 300 >= 0.93


@pytest.mark.parametrize(("precision", "num_accepted"), [(0.98, 50), (0.95, 40)])
def test_about_95_percent_of_the_intervals_of_precision_cover_the_truth(precision, num_accepted):
    rng, covered = np.random.default_rng(4), 0
    problems = [str(row) for row in range(num_accepted)]
    for _ in range(600):
        labels = [int(draw < precision) for draw in rng.uniform(size=num_accepted)]
        found = score_intervals(labels, [0.9] * num_accepted, problems=problems)["precision"]
        covered += found.low <= precision <= found.high
    assert 0.92 <= covered / 600 <= 0.99


def test_intervals_leave_out_what_one_class_cannot_say():
    assert score_intervals([0, 0], [0.1, 0.2], problems=["a", "b"]) == {}
    assert set(score_intervals([1, 1], [0.9, 0.2], problems=["a", "a"])) == {"precision", "recall", "f1"}
