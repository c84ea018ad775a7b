"""Shortcut probe: can labels be told without reading the answer? (row 4, and the leak guard over pairs)

A logistic regression that sees length, last characters, formatting and the place of the answer, but neither
the reference answer nor the numbers. Where it comes close to VerifyRM, VerifyRM may have learned the same.
The caller compares the two.
"""

import hashlib
import re
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from cooper_rl.method.metrics import auroc
from cooper_rl.schema.data import PreferencePair, VerifyExample

Floats = npt.NDArray[np.float64]

NUM_FOLDS = 5
L2 = 1.0
"""Penalty on the weights of the probe's regression."""
LAST_CHARACTERS = ".}0123456789)`$%\n \"'"
MARKERS = (
    "\\boxed",
    "####",
    "answer is",
    "Answer:",
    "\nA:",
    '"answer"',
    "```",
    "<<",
    "**",
    "\\frac",
    "=",
    "\n\n",
)


def shortcut_auroc(examples: Sequence[VerifyExample]) -> float | None:
    """AUROC of the probe on problems it was not fitted on; None without both labels or enough problems."""
    features = np.array([shortcut_features(example.completion) for example in examples])
    labels = [example.label for example in examples]
    scores = cross_validated_scores(features, labels, [example.question for example in examples])
    return None if scores is None else auroc(labels, scores)


def pair_shortcut_auroc(pairs: Sequence[PreferencePair]) -> float | None:
    """The same for positives against negatives, without attacks, which look like nothing else on purpose."""
    told = [pair for pair in pairs if pair.source not in {"canary", "red_team"}]
    features = np.array([shortcut_features(text) for pair in told for text in (pair.positive, pair.negative)])
    labels = [1, 0] * len(told)
    groups = [question for pair in told for question in (pair.question, pair.question)]
    scores = cross_validated_scores(features, labels, groups)
    return None if scores is None else auroc(labels, scores)


def shortcut_features(completion: str) -> list[float]:
    """Features of a completion that can be seen without reading it."""
    lines = completion.split("\n")
    last_line, last_digit = lines[-1], max(_digit_places(completion), default=-1)
    size = max(len(completion), 1)
    found = [
        float(np.log1p(len(completion))),
        float(np.log1p(len(lines))),
        float(np.log1p(len(last_line))),
        sum(letter.isdigit() for letter in completion) / size,
        (last_digit + 1) / size,
        float(completion[:1].isupper()),
        float(completion != completion.strip()),
    ]
    found += [float(completion.endswith(letter)) for letter in LAST_CHARACTERS]
    for marker in MARKERS:
        place = completion.rfind(marker)
        found += [float(place >= 0), (place + 1) / size]
    return found


def cross_validated_scores(
    features: Floats, labels: Sequence[int], groups: Sequence[str]
) -> list[float] | None:
    """Scores in (0, 1) from a regression fitted on other groups, in order; groups are dealt to five folds.

    None when there are fewer groups than folds, or a fold leaves one label only to fit on.
    """
    # By hash: stable in every process, and not in the order of the questions, which data sets sort by kind.
    names = sorted(set(groups), key=lambda name: hashlib.sha256(name.encode()).digest())
    if len(names) < NUM_FOLDS:
        return None
    fold_of = {name: place % NUM_FOLDS for place, name in enumerate(names)}
    folds = np.array([fold_of[group] for group in groups])
    targets = np.asarray(labels, dtype=float)
    scores: Floats = np.zeros(len(targets))
    for fold in range(NUM_FOLDS):
        kept = folds != fold
        if targets[kept].min() == targets[kept].max():
            return None
        weights = fit_logistic(features[kept], targets[kept], l2=L2)
        scores[~kept] = predict_logistic(weights, features[~kept])
    return [float(score) for score in scores]


def fit_logistic(features: Floats, targets: Floats, *, l2: float) -> Floats:
    """(3, D + 1) means, scales and weights of a logistic regression on standardised features.

    Newton's method with a penalty of l2/2 times the squared weights (not on the intercept).
    """
    mean, scale = features.mean(axis=0), features.std(axis=0)
    # A constant feature would be divided by 0.
    scale = np.where(scale > 1e-9, scale, 1.0)
    rows: Any = np.hstack([np.ones((len(features), 1)), (features - mean) / scale])
    penalty: Any = np.full(rows.shape[1], l2)
    # Almost none on the intercept, and not 0: the matrix must stay invertible.
    penalty[0] = 1e-6
    weights: Any = np.zeros(rows.shape[1])
    for _ in range(30):
        step = _newton_step(rows, targets, weights, penalty)
        size = float(np.abs(step).max())
        # Damped: where the classes can be separated, Newton's first steps overshoot.
        weights = weights - step * min(1.0, 5.0 / max(size, 1e-12))
        if size < 1e-6:
            break
    fitted: list[Floats] = [np.append(0.0, mean), np.append(1.0, scale), weights]
    return np.stack(fitted)


def _newton_step(rows: Any, targets: Any, weights: Any, penalty: Any) -> Any:
    chance: Any = _sigmoid(rows.dot(weights))
    slope: Any = rows.T.dot(chance - targets) + penalty * weights
    curvature: Any = (rows.T * (chance * (1 - chance))).dot(rows) + np.diag(penalty)
    return cast("Any", np.linalg).solve(curvature, slope)


def predict_logistic(fitted: Floats, features: Floats) -> Floats:
    """Scores (N,) in (0, 1)."""
    mean, scale, weights = fitted
    return _sigmoid(weights[0] + ((features - mean[1:]) / scale[1:]).dot(weights[1:]))


def _sigmoid(values: Floats) -> Floats:
    # exp(710) overflows; beyond 30 the result is 0 or 1 to thirteen digits.
    return 1 / (1 + np.exp(-np.clip(values, -30, 30)))


def _digit_places(text: str) -> list[int]:
    return [match.start() for match in re.finditer(r"\d", text)]
