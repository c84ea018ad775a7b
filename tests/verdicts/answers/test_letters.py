"""Capital and small letters: two variables in one answer, an abstention where two answers differ in case."""

import pytest

from cooper_rl.verdicts.answers.letters import tell_cases_apart
from cooper_rl.verdicts.answers.verify import verify_answer

PAIRS = [("R", "r"), ("M", "m"), ("A", "a"), ("N", "n"), ("K", "k"), ("C", "c"), (r"\Delta ", r"\delta ")]
FORMS = [
    # reference answer, equal to it, equal only if the capital is the small letter
    ("BIG^2-SMALL^2", "(BIG-SMALL)(BIG+SMALL)", "0"),
    (r"\frac{BIG}{SMALL}", r"\frac{2 BIG}{2 SMALL}", "1"),
    (r"\frac{BIG}{BIG+SMALL}", r"\frac{1}{1+SMALL/BIG}", r"\frac{1}{2}"),
    ("5BIG+3SMALL", "3SMALL+5BIG", "3BIG+5SMALL"),
]


@pytest.mark.parametrize(("big", "small"), PAIRS)
@pytest.mark.parametrize(("reference_answer", "equal", "other"), FORMS)
def test_an_answer_with_both_cases_has_two_variables(
    reference_answer: str, equal: str, other: str, big: str, small: str
) -> None:
    reference, *answers = (
        text.replace("BIG", big).replace("SMALL", small) for text in (reference_answer, equal, other)
    )
    verdicts = [verify_answer(reference, rf"\boxed{{{answer}}}").verdict for answer in answers]
    assert verdicts == ["correct", "incorrect"]


@pytest.mark.parametrize(("big", "small"), PAIRS)
@pytest.mark.parametrize(
    "form", ["4NAME", r"\pi NAME^2", "2^{NAME}", r"x=3NAME", "(0, NAME)", "0 < x < NAME"]
)
def test_answers_whose_letters_differ_in_case_are_an_abstention(form: str, big: str, small: str) -> None:
    for reference, answer in ((big, small), (small, big)):
        texts = form.replace("NAME", reference), form.replace("NAME", answer)
        assert verify_answer(texts[0], rf"\boxed{{{texts[1]}}}").verdict == "unparsable"
        assert verify_answer(texts[0], rf"\boxed{{{texts[0]}}}").verdict == "correct"


@pytest.mark.parametrize(
    ("reference_answer", "answer"),
    [
        (r"\frac{x^2}{2} + C", r"\frac{x^2}{2} + c"),  # the constant of integration has any name
        (r"\frac{cx^2}{2} + C", r"C + \frac{cx^2}{2}"),
        (r"x \in \mathbb{R}", r"x\in\mathbb{R}"),
        ("The Queen", "the queen"),
        ("A cat", "cat"),
        ("GP", "Gp"),  # a word
    ],
)
def test_what_is_no_variable_has_any_case(reference_answer: str, answer: str) -> None:
    assert verify_answer(reference_answer, rf"\boxed{{{answer}}}").verdict == "correct"


def test_letters_change_only_where_both_cases_occur() -> None:
    assert tell_cases_apart(r"\frac{R}{2}", "0.5R + r") is not None
    for texts in ((r"\frac{R}{2}", "0.5R"), ("E", "e"), (r"\mathbb{R}", "r"), (r"R \text{ or } 2R", "R")):
        assert tell_cases_apart(*texts) is None
