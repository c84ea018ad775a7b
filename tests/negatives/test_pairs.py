"""What may be a negative, and whose turn it is to give one."""

import itertools
import random
from collections import Counter
from typing import get_args

import pytest

from cooper_rl.config import names
from cooper_rl.negatives.pairs import draw_order, is_rejected, is_valid_negative
from cooper_rl.schema.data import Verdict

VERDICTS = get_args(Verdict)


def test_a_written_text_must_be_called_incorrect() -> None:
    assert [verdict for verdict in VERDICTS if is_valid_negative(verdict)] == ["incorrect"]


def test_a_text_that_is_known_to_be_wrong_must_not_be_right_by_chance() -> None:
    found = [verdict for verdict in VERDICTS if is_valid_negative(verdict, is_known_wrong=True)]
    assert found == ["incorrect", "unparsable"]


def test_a_rollout_needs_two_rejections_and_no_acceptance() -> None:
    """Of the 27 verdicts of three verifiers: all three reject (1), or two do and one abstains (3)."""
    rejected = [verdicts for verdicts in itertools.product(VERDICTS, repeat=3) if is_rejected(verdicts)]
    assert len(rejected) == 4
    assert ("incorrect", "incorrect", "incorrect") in rejected
    assert all("correct" not in verdicts and verdicts.count("incorrect") >= 2 for verdicts in rejected)
    assert not is_rejected(["incorrect"])
    assert not is_rejected(["incorrect", "incorrect", "correct"])


def test_sources_come_first_in_the_shares_of_their_weights() -> None:
    """Weights 1 and 3 and nothing: rollout leads 75 %; sd of 4000 draws = sqrt(.75 * .25 / 4000) = .7 %."""
    weights = {"assistant": 1.0, "rollout": 3.0, "perturb": 0.0, "canary": 0.0}
    orders = [draw_order(weights, random.Random(seed)) for seed in range(4000)]
    assert all(sorted(order) == ["assistant", "rollout"] for order in orders)
    assert sum(order[0] == "rollout" for order in orders) / 4000 == pytest.approx(0.75, abs=0.03)


def test_the_rest_is_drawn_by_the_weights_that_are_left() -> None:
    """2:1:1, where the first goes first (1/2): the other two are equal, each second in a quarter of all."""
    weights = {"assistant": 2.0, "rollout": 1.0, "canary": 1.0}
    counts = Counter(tuple(draw_order(weights, random.Random(seed))) for seed in range(4000))
    assert counts["assistant", "rollout", "canary"] / 4000 == pytest.approx(0.25, abs=0.03)
    assert counts["assistant", "canary", "rollout"] / 4000 == pytest.approx(0.25, abs=0.03)
    assert len(counts) == 6


def test_the_same_random_state_gives_the_same_order() -> None:
    weights = dict.fromkeys(names.NEGATIVE_SOURCES.names, 1.0)
    orders = [draw_order(weights, random.Random(seed)) for seed in range(50)]
    assert orders == [draw_order(weights, random.Random(seed)) for seed in range(50)]
    assert len({tuple(order) for order in orders}) > 10
