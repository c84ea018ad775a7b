"""The shortcut probe finds what it can see and nothing else."""

import random

import numpy as np
import pytest

from benchmarks.verify_rm_real_data import bag_of_words
from cooper_rl.method.shortcuts import (
    LAST_CHARACTERS,
    MARKERS,
    cross_validated_scores,
    fit_logistic,
    predict_logistic,
    shortcut_auroc,
    shortcut_features,
)
from cooper_rl.schema.data import VerifyExample


def rows(number: int, *, leak: bool) -> list[VerifyExample]:
    """Correct completions end in a newline when there is a leak; else label and text are unrelated."""
    rng = random.Random(0)
    found = []
    for place in range(number):
        label = rng.randrange(2)
        text = "word " * rng.randrange(1, 30) + f"#### {rng.randrange(100)}"
        text += "\n" if leak and label else ""
        found.append(VerifyExample(question=f"Q{place}", reference_answer="1", completion=text, label=label))
    return found


def test_a_newline_on_one_side_is_found() -> None:
    """The release renders negatives with an extra newline."""
    assert shortcut_auroc(rows(200, leak=True)) == pytest.approx(1.0)


def test_nothing_is_found_where_there_is_nothing() -> None:
    assert shortcut_auroc(rows(400, leak=False)) < 0.6


def test_too_few_problems_or_one_label_give_no_number() -> None:
    assert shortcut_auroc(rows(4, leak=False)) is None
    assert shortcut_auroc([row.model_copy(update={"label": 1}) for row in rows(20, leak=False)]) is None


def test_a_label_that_one_fold_has_alone_gives_no_scores() -> None:
    """The regression is fitted on the four other folds, of five problems on four."""
    features, names = np.zeros((5, 1)), list("abcde")
    assert cross_validated_scores(features, [1, 0, 0, 0, 0], names) is None
    assert cross_validated_scores(features, [1, 0, 1, 0, 0], names) is not None


def test_folds_do_not_follow_the_order_of_the_questions() -> None:
    """Every fifth of ten questions is right: dealt in their order, one fold would have both."""
    names = [f"question {place}" for place in range(10)]
    labels = [int(place % 5 == 1) for place in range(10)]
    assert cross_validated_scores(np.zeros((10, 1)), labels, names) is not None


def test_the_features_of_a_short_completion_are_the_hand_worked_ones() -> None:
    """17 characters in two lines, the last of 8; 3 of them digits, the last at 16; a capital and a space at
    the ends, and the one marker that is there begins at 10."""
    found = shortcut_features("It is 7.\n#### 12 ")
    sizes, shares = np.log1p([17, 2, 8]), [3 / 17, 16 / 17]
    assert found[:7] == pytest.approx([*sizes, *shares, 1.0, 1.0])
    endings, markers = found[7 : 7 + len(LAST_CHARACTERS)], found[7 + len(LAST_CHARACTERS) :]
    assert [letter for letter, is_last in zip(LAST_CHARACTERS, endings, strict=True) if is_last] == [" "]
    assert [marker for marker, is_there in zip(MARKERS, markers[::2], strict=True) if is_there] == ["####"]
    assert sum(markers[1::2]) == pytest.approx(10 / 17)


@pytest.mark.parametrize(
    ("completion", "marker", "place"), [("**7**", "**", 4 / 5), ("=7", "=", 1 / 2), ("7", "=", 0)]
)
def test_a_marker_counts_where_it_begins_last(completion: str, marker: str, place: float) -> None:
    """The second ** begins at the fourth of five characters; a marker may be the first of all."""
    markers = shortcut_features(completion)[7 + len(LAST_CHARACTERS) :]
    which = 2 * MARKERS.index(marker)
    assert markers[which : which + 2] == [float(place > 0), place]


def test_a_lone_digit_is_all_of_its_completion() -> None:
    assert shortcut_features("7")[3:5] == [1.0, 1.0]


def test_an_empty_completion_has_no_features_but_its_line() -> None:
    found = shortcut_features("")
    assert (found[1], sum(found)) == pytest.approx((np.log(2), np.log(2)))


def test_a_feature_counts_alike_in_every_unit() -> None:
    features, targets = np.array([[0.0], [1.0], [2.0], [5.0]]), np.array([0.0, 1, 0, 1])
    first, *others = (
        predict_logistic(fit_logistic(features * unit, targets, l2=1.0), features * unit)
        for unit in (1.0, 1000.0, 0.001)
    )
    assert all(other == pytest.approx(first) for other in others)


def test_a_strong_penalty_leaves_the_share_of_correct_examples() -> None:
    """3 of 4 are correct, all where x is 1: the intercept is free, the weight is not."""
    features, targets = np.array([[0.0], [1.0], [1.0], [1.0]]), np.array([0.0, 1, 1, 1])
    fitted = fit_logistic(features, targets, l2=1e9)
    assert predict_logistic(fitted, features) == pytest.approx([0.75] * 4, abs=1e-5)


def test_a_regression_on_one_feature_recovers_the_log_odds() -> None:
    """3 of 4 correct at x = 1, 1 of 4 at x = 0: scores .75 and .25 without a penalty."""
    features = np.array([[0.0]] * 4 + [[1.0]] * 4)
    targets = np.array([0.0, 0, 0, 1, 1, 1, 1, 0])
    fitted = fit_logistic(features, targets, l2=1e-9)
    assert predict_logistic(fitted, np.array([[0.0], [1.0]])) == pytest.approx([0.25, 0.75], abs=1e-6)


def test_a_regression_of_one_varied_and_one_constant_feature_is_the_hand_worked_one() -> None:
    """Means 1 and 3; scales 1 and, of the constant, 1; the intercept, in front, has 0 and 1.

    Labels 0 and 1 at -1 and 1: the slope w solves 2 / (1 + e^w) = w, which .674832 does.
    """
    mean, scale, weights = fit_logistic(np.array([[0.0, 3], [2, 3]]), np.array([0.0, 1]), l2=1.0)
    assert (mean.tolist(), scale.tolist()) == ([0, 1, 3], [1, 1, 1])
    assert weights == pytest.approx([0, 0.674832, 0], abs=1e-6)


def test_a_fit_whose_first_step_overshoots_ends_at_the_minimum() -> None:
    """Two features that differ by noise, and labels by the noise: weights of -20 and 20, a first step of 16.

    At the minimum the gradient is 0: for every column, the sum of x (score - label) plus l2 times the weight.
    """
    rng = np.random.default_rng(0)
    common, noise = rng.normal(size=(2, 400))
    features = np.stack([common, common + 0.05 * noise], axis=1)
    targets = (rng.random(400) < 1 / (1 + np.exp(-noise))).astype(float)
    fitted = fit_logistic(features, targets, l2=1e-3)
    assert np.abs(fitted[2]).max() > 15
    columns = (features - fitted[0, 1:]) / fitted[1, 1:]
    wrong = predict_logistic(fitted, features) - targets
    assert columns.T @ wrong + 1e-3 * fitted[2, 1:] == pytest.approx([0, 0], abs=1e-6)


def test_scores_of_features_far_out_stay_between_zero_and_one() -> None:
    """Log odds are cut to 30 on either side: 1 / (1 + e^30) = 9.3576e-14; 1 - x keeps three digits of it."""
    fitted = np.array([[0.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    low, high = predict_logistic(fitted, np.array([[-1e6], [1e6]]))
    assert (low, 1 - high) == pytest.approx((9.3576e-14, 9.3576e-14), rel=2e-3, abs=0)


def test_a_problem_is_never_scored_by_what_was_fitted_on_it() -> None:
    """Each problem's label is written into a feature of its own: useless on other problems."""
    features = np.eye(20).repeat(2, axis=0)
    labels = [place % 2 for place in range(20) for _ in range(2)]
    scores = cross_validated_scores(features, labels, [str(place) for place in range(20) for _ in range(2)])
    assert max(scores) - min(scores) < 0.5


def test_words_are_counted_in_the_same_bucket_everywhere() -> None:
    assert bag_of_words("Six six 6", 512) == bag_of_words("six 6 SIX", 512)
    assert sum(count > 0 for count in bag_of_words("a b", 512)) == 2
