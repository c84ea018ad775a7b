import random
import re

import pytest

from cooper_rl.negatives.pairs import RewriteItem
from cooper_rl.tiny.assistant import TinyAssistant
from cooper_rl.tiny.judge import judge_exactly
from cooper_rl.tiny.problems import generate_stories
from cooper_rl.tiny.solutions import Habits, solve
from cooper_rl.verdicts.hybrid import JudgeItem


def items(count: int) -> list[RewriteItem]:
    rng = random.Random(0)
    return [
        RewriteItem(
            str(number),
            story.question,
            str(story.answer),
            solve(story, rng, habits=Habits()).text,
        )
        for number, story in enumerate(generate_stories(count, rng))
    ]


def test_every_rewrite_of_a_correct_solution_is_wrong_and_states_one_answer() -> None:
    chosen = items(500)
    for item, text in zip(chosen, TinyAssistant().rewrite(chosen, seed=0), strict=True):
        assert text is not None
        result = judge_exactly(JudgeItem(item.question, item.reference_answer, text))
        assert result.verdict == "incorrect"
        assert result.reason.startswith("states ")
        assert "different" not in result.reason


def test_a_rewrite_keeps_the_form_of_the_solution() -> None:
    number = re.compile(
        r"\d+|(?<=\{)[a-z-]+|(?<=has )[a-z-]+|(?<=have )[a-z-]+|(?<=pays )[a-z-]+|(?<=is )[a-z-]+"
    )
    chosen = items(300)
    for item, text in zip(chosen, TinyAssistant().rewrite(chosen, seed=0), strict=True):
        assert text is not None
        assert number.sub("N", text) == number.sub("N", item.solution)


def test_a_slip_in_an_early_step_is_carried_through_to_the_answer() -> None:
    item = RewriteItem("p", "How many?", "10", "7-2=5;5*2=10. The answer is ten.")
    rewrites = {TinyAssistant().rewrite([item], seed=seed)[0] for seed in range(50)}
    assert "7-2=6;6*2=12. The answer is twelve." in rewrites
    assert "7-2=5;5*2=11. The answer is eleven." in rewrites


def test_another_seed_gives_another_rewrite_and_the_same_seed_the_same() -> None:
    chosen = items(200)
    first = TinyAssistant().rewrite(chosen, seed=1)
    assert first == TinyAssistant().rewrite(chosen, seed=1)
    second = TinyAssistant().rewrite(chosen, seed=2)
    assert sum(a != b for a, b in zip(first, second, strict=True)) > 150


def test_an_answer_without_a_chain_is_changed_in_place() -> None:
    item = RewriteItem("p", "How many?", "10", "Ten apples, so 10.0.")
    text = TinyAssistant().rewrite([item], seed=0)[0]
    assert text is not None
    assert re.fullmatch(r"[A-Z][a-z-]+ apples, so \d+\.0\.", text)


@pytest.mark.parametrize(
    "solution", ["", "no number here", "The answer is 10. The answer is 12.", "It is 2.5."]
)
def test_a_solution_without_one_whole_number_as_its_answer_is_not_rewritten(solution: str) -> None:
    assert TinyAssistant().rewrite([RewriteItem("p", "How many?", "10", solution)], seed=0) == [None]
