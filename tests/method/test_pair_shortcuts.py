"""The leak guard over pairs: it finds a form that only one half has."""

import random

import pytest

from cooper_rl.method.shortcuts import pair_shortcut_auroc
from cooper_rl.schema.data import PreferencePair


def pairs(
    count: int, *, ending: str = "", form: str = "#### {}", source: str = "rollout"
) -> list[PreferencePair]:
    """Both halves count up to a random number; negatives close in `form` and with `ending`."""
    rng = random.Random(0)

    def text(closing: str) -> str:
        return "word " * rng.randrange(1, 20) + closing.format(rng.randrange(10, 100))

    return [
        PreferencePair(
            step=1, problem_id=str(place), question=f"Q{place}", reference_answer="1",
            positive=text("#### {}"), negative=text(form) + ending, source=source,
        )
        for place in range(count)
    ]  # fmt: skip


def test_a_trailing_newline_of_the_negatives_is_found() -> None:
    """What the release's chat template leaves behind."""
    assert pair_shortcut_auroc(pairs(60, ending="\n")) == pytest.approx(1.0)


def test_another_form_of_the_negatives_is_found() -> None:
    assert pair_shortcut_auroc(pairs(60, form="\\boxed{{{}}}")) == pytest.approx(1.0)


def test_halves_of_the_same_form_cannot_be_told_apart() -> None:
    """300 pairs: the standard error of an AUROC of .5 is about sqrt(1 / (6 * 300)) = .024."""
    assert pair_shortcut_auroc(pairs(300)) == pytest.approx(0.5, abs=0.08)


@pytest.mark.parametrize("source", ["canary", "red_team"])
def test_attacks_are_not_looked_at(source: str) -> None:
    attacks = pairs(60, ending="\n", source=source)
    assert pair_shortcut_auroc(attacks) is None
    told = pairs(60)
    assert pair_shortcut_auroc([*told, *attacks]) == pair_shortcut_auroc(told)


def test_fewer_than_five_problems_give_no_number() -> None:
    assert pair_shortcut_auroc(pairs(4, ending="\n")) is None
    assert pair_shortcut_auroc(pairs(5, ending="\n")) is not None
    assert pair_shortcut_auroc([]) is None
