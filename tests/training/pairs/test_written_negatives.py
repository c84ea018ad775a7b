"""Written negatives are checked as rollouts are: with the question, which tells what is right."""

from collections.abc import Iterator, Sequence

import pytest

from cooper_rl.config.data import RuleConfig
from cooper_rl.negatives.pairs import RewriteItem
from cooper_rl.training.negative_sources import Writing
from cooper_rl.training.rollout import Scores
from cooper_rl.verdicts.rule import RuleVerifier

CHOICES = "What is 2 + 3?\n(A) 4\n(B) 5\n(C) 6"
ROUNDED = "How many feet is it? Round to the nearest whole number."


class Saying:
    """Writes the same text for every item."""

    name = "saying"

    def __init__(self, text: str) -> None:
        self._text = text

    def rewrite(self, items: Sequence[RewriteItem], *, seed: int) -> list[str | None]:
        return [self._text for _ in items]


@pytest.fixture(scope="module")
def rule() -> Iterator[RuleVerifier]:
    with RuleVerifier(RuleConfig(num_workers=1)) as verifier:
        yield verifier


@pytest.mark.parametrize(
    ("question", "reference_answer", "text", "is_known_wrong", "is_found"),
    [
        (ROUNDED, "12.37", "#### 12", False, False),
        (ROUNDED, "12.37", "#### 14", False, True),
        (CHOICES, "B", "So the answer is 5.", True, False),
        (CHOICES, "B", "So the answer is 4.", False, True),
    ],
)
def test_a_text_that_the_question_makes_right_is_no_negative(
    rule, question: str, reference_answer: str, text: str, is_known_wrong: bool, is_found: bool
) -> None:
    source = Writing("saying", Saying(text), rule, is_known_wrong=is_known_wrong)
    item = RewriteItem("p", question, reference_answer, "")
    found = source.find([item], [], Scores(verify_rm=[], rule=[]), seed=0)
    assert found.texts == ({"p": text} if is_found else {})
