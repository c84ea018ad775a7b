"""Answers that words beside them alter: a search by a grammar in place of a list."""

import random

import pytest

from cooper_rl.negatives.matching import STATED
from cooper_rl.verdicts.answers.verify import verify_answer
from tests.verdicts.answers.altering import alter


@pytest.mark.parametrize("answer", ["12", "7", "-3", "0.5", "2/3", "x+1", "(2, 3)", "\\sqrt{2}"])
def test_an_altered_answer_is_never_correct(answer: str) -> None:
    rng = random.Random(4)
    for _ in range(150):
        text = rng.choice(STATED).format(alter(answer, rng))
        assert verify_answer(answer, text).verdict != "correct", text


@pytest.mark.parametrize("words", ["exactly {}", "just {}", "precisely {}", "{} in total", "a total of {}"])
def test_words_that_leave_an_answer_make_no_other_one_of_it(words: str) -> None:
    for statement in STATED:
        text = statement.format(words.format("12"))
        assert verify_answer("12", text).verdict != "incorrect", text
