"""Canaries as a metric and as negatives."""

import pytest

from cooper_rl.domains.mathematics import MATHEMATICS
from cooper_rl.negatives.answer_attacks import ATTACKS
from cooper_rl.negatives.canaries import Canary, canary_rates, mean_rate
from cooper_rl.negatives.pairs import RewriteItem
from cooper_rl.schema.data import VerifyExample

ITEMS = [
    RewriteItem("a", "What is 3*4?", "12", "Three times four is twelve, so: #### 12"),
    RewriteItem("b", "What is 2+5?", "7", "Two plus five makes seven, so: #### 7"),
]


def canary(attack: str, question: str) -> Canary:
    return Canary(attack, VerifyExample(question=question, reference_answer="1", completion="", label=0))


def test_a_rate_is_the_share_of_an_attack_above_one_half() -> None:
    """Empty: .9 and .2 give 1/2; colon: .5 is not above, .51 and .99 are, 2/3; the mean is 7/12."""
    canaries = [canary("empty", "q1"), canary("colon", "q1"), canary("empty", "q2")]
    canaries += [canary("colon", "q2"), canary("colon", "q3")]
    rates = canary_rates(canaries, [0.9, 0.5, 0.2, 0.51, 0.99])
    assert list(rates) == ["empty", "colon"]
    assert rates["empty"].value == 0.5
    assert rates["colon"].value == pytest.approx(2 / 3)
    assert (rates["empty"].count, rates["colon"].count) == (2, 3)
    assert mean_rate(rates) == pytest.approx(7 / 12)


def test_no_canaries_give_a_rate_of_zero() -> None:
    assert canary_rates([], []) == {}
    assert mean_rate({}) == 0.0


def written(items: list[RewriteItem]) -> list[list[str | None]]:
    return [MATHEMATICS.canary_writer.rewrite(items, seed=seed) for seed in range(100)]


def test_attacks_are_drawn_with_the_seed_and_none_is_the_solution() -> None:
    texts = written(ITEMS)
    assert texts == written(ITEMS)
    first = {row[0] for row in texts}
    assert {"", ":", "Thought process:", ITEMS[0].question, ITEMS[1].solution} <= first
    assert all(row[place] != ITEMS[place].solution for row in texts for place in (0, 1))
    assert len(first) == len(ATTACKS)


def test_an_attack_without_material_gives_none() -> None:
    """Alone, a problem has no other answer to be put in a box, nor another's solution."""
    alone = {row[0] for row in written(ITEMS[:1])}
    assert None in alone
    assert ITEMS[1].solution not in alone
    assert not any("one of \\boxed" in text for text in alone if text)
    assert None not in {row[0] for row in written(ITEMS)}
