"""Texts of random tokens: a completion that raises would end a training."""

import random

import pytest

from cooper_rl.config.data import AnswerPolicy
from cooper_rl.verdicts.answers.arithmetic import evaluate
from cooper_rl.verdicts.answers.verify import AnswerCheck, AnswerItem, compare_quickly, state_answer

ARITHMETIC = ["12", "3", ".5", "(", ")", "{", "}", "+", "-", "*", "/", "^", r"\frac"]
OTHERS = [
    *("0", "1e5", "[", "]", r"\{", r"\}", "=", "<", ">", ",", ";", ":", "|", "%", "!", "'", "$", "&", r"\\"),
    *(
        "x",
        "A",
        "B)",
        "and",
        "or",
        "am",
        "cm",
        "five",
        r"\sqrt{2}",
        r"\frac{1}{2}",
        r"\cup",
        r"\infty",
        r"\pm",
    ),
    *(r"\text{", r"\begin{pmatrix}", r"\end{pmatrix}", r"\overline{3}", "_2", "^{T}", r"\pmod", r"\approx"),
]
REFERENCE_ANSWERS = ("12", "x+1", r"\frac{1}{2}", "(1,2)", "B", "3 cm", "x=1,y=2", "1:2", "12_5", "10:30 am")
FORMS = (
    r"\boxed{TEXT}",
    "The answer is TEXT.",
    "#### TEXT",
    "TEXT",
    "<answer>TEXT</answer>",
    '{"answer": "TEXT"}',
)


@pytest.mark.parametrize("text", ["12/(3", "3*(4", "2+(1", "((1+2)*3", "2^(", ")", "1)*(2"])
def test_a_bracket_without_its_partner_has_no_value(text: str) -> None:
    assert evaluate(text) is None


@pytest.mark.parametrize("tokens", [ARITHMETIC, ARITHMETIC + OTHERS])
@pytest.mark.parametrize("seed", range(2))
def test_no_completion_raises(seed: int, tokens: list[str]) -> None:
    rng = random.Random(seed)
    for _ in range(2000):
        text = rng.choice(("", " ")).join(rng.choices(tokens, k=rng.randint(1, 9)))
        completion = rng.choice(FORMS).replace("TEXT", text)
        stated = state_answer(AnswerItem(rng.choice(REFERENCE_ANSWERS), completion), AnswerPolicy())
        if not isinstance(stated, AnswerCheck):
            compare_quickly(stated, AnswerPolicy())
