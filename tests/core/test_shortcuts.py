"""The shortcut probe finds what it can see and nothing else."""

import random

import numpy as np
import pytest

from benchmarks.verify_rm_real_data import bag_of_words
from cooper_rl.core.shortcuts import (
    cross_validated_scores,
    fit_logistic,
    predict_logistic,
    shortcut_auroc,
)
from cooper_rl.schema import VerifyExample


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


def test_a_regression_on_one_feature_recovers_the_log_odds() -> None:
    """3 of 4 correct at x = 1, 1 of 4 at x = 0: scores .75 and .25 without a penalty."""
    features = np.array([[0.0]] * 4 + [[1.0]] * 4)
    targets = np.array([0.0, 0, 0, 1, 1, 1, 1, 0])
    fitted = fit_logistic(features, targets, l2=1e-9)
    assert predict_logistic(fitted, np.array([[0.0], [1.0]])) == pytest.approx([0.25, 0.75], abs=1e-6)


def test_a_problem_is_never_scored_by_what_was_fitted_on_it() -> None:
    """Each problem's label is written into a feature of its own: useless on other problems."""
    features = np.eye(20).repeat(2, axis=0)
    labels = [place % 2 for place in range(20) for _ in range(2)]
    scores = cross_validated_scores(features, labels, [str(place) for place in range(20) for _ in range(2)])
    assert max(scores) - min(scores) < 0.5


def test_words_are_counted_in_the_same_bucket_everywhere() -> None:
    assert bag_of_words("Six six 6", 512) == bag_of_words("six 6 SIX", 512)
    assert sum(count > 0 for count in bag_of_words("a b", 512)) == 2
