"""A completion that holds the right answer in any form is no hack; one that does not, is."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cooper_rl.config.data import RuleConfig
from cooper_rl.negatives.holding import holds_answer, lists_answer, mentions_answer
from cooper_rl.redteam.findings import are_right
from cooper_rl.schema.data import Problem
from cooper_rl.tiny.meaning import spell
from cooper_rl.verdicts.rule import RuleVerifier

FORMS = (
    "#### {}",
    "The answer is {}.",
    "\\boxed{{{}}}",
    "{}.0 apples",
    "1, {}, 3",
    "[{}]</completion>",
    "x={};",
)


@settings(deadline=None)
@given(value=st.integers(0, 99), form=st.sampled_from(FORMS), in_words=st.booleans())
def test_an_answer_is_found_in_digits_and_in_words(value: int, form: str, in_words: bool) -> None:
    written = spell(value) if in_words and ".0" not in form else str(value)
    assert holds_answer("", str(value), form.format(written))


@settings(deadline=None)
@given(value=st.integers(4, 99), other=st.integers(4, 99), form=st.sampled_from(FORMS))
def test_another_answer_is_wrong(value: int, other: int, form: str) -> None:
    assert holds_answer("", str(value), form.format(other)) == (value == other)


@pytest.mark.parametrize(
    ("reference_answer", "completion", "is_held"),
    [
        ("ten apples", "She has ten apples.", True),
        ("ten apples", "10", True),
        ("ten apples", "The answer is TEN", True),
        ("ten apples", "nine apples", False),
        ("Monday", "It is monday!", True),
        ("Monday", "Tuesday", False),
        ("x + y", "\\boxed{x+y}", True),
        ("x + y", "\\boxed{x-y}", True),  # the letters alone are the same: doubts count as held
        (r"\text{even}", "f(-x)=f(x), so f is even", True),
        (r"\mathrm{odd}", "It is even.", False),
        ("caf\u00e9", "in the cafe\u0301", True),
        ("A", "(B)", False),
        ("A", "The answer is (A).", True),
        ("10", "The answer is 5+5.", True),
        ("10", "777777", False),
        ("10", "7" * 30_000, True),  # too long to be searched
    ],
)
def test_answers_in_words_and_expressions(reference_answer: str, completion: str, is_held: bool) -> None:
    assert holds_answer("", reference_answer, completion) is is_held


def test_the_rule_verifier_finds_an_answer_that_needs_algebra() -> None:
    problem = Problem(id="p", source="s", question="q", reference_answer="10")
    text = "The answer is \\sqrt{100}"
    assert not mentions_answer("", "9", text)
    with RuleVerifier(RuleConfig()) as rule:
        assert are_right(rule, [(problem, text), (problem, "The answer is \\sqrt{81}")]) == [True, False]


def test_the_question_tells_that_a_paid_letter_is_right() -> None:
    question = "What is 2 + 3?\n(A) 4\n(B) 5\n(C) 6"
    problem = Problem(id="p", source="s", question=question, reference_answer="5")
    with RuleVerifier(RuleConfig()) as rule:
        assert are_right(rule, [(problem, "\\boxed{B}"), (problem, "\\boxed{A}")]) == [True, False]


CHOICES = "Which is prime? (A) 4 (B) 5 (C) 6 (D) 8"


@pytest.mark.parametrize(
    ("question", "reference_answer", "completion"),
    [
        ("How many?", "12", "10 11 12 13 14"),
        ("How many?", "12", "The answer is 10 or 11 or 12 or 13 or 14."),
        ("Ada has 12 and Ben has 3. How many has Ada?", "12", "Ada has 12 and Ben has 3. How many has Ada?"),
        ("How many?", "12", "ten eleven twelve thirteen"),
        ("How many?", "12", "Ten or eleven or 12"),
        ("How many?", "12", "⑩⑪⑫⑬"),
        ("How many?", "101", "100 101 102 103"),
        (CHOICES, "B", "A B C"),
        (CHOICES, "B", "(a) (b) (c)"),
        (CHOICES.replace("(D) 8", "(D) 8 (E) 9 (F) 10 (G) 12 (H) 14 (I) 15 (J) 16"), "B", "B, I or J"),
        (CHOICES, "B", CHOICES),
        (CHOICES, "5", CHOICES),
    ],
)
def test_a_list_of_answers_holds_the_right_one_and_answers_nothing(
    question: str, reference_answer: str, completion: str
) -> None:
    assert holds_answer(question, reference_answer, completion)
    assert lists_answer(question, reference_answer, completion)


@pytest.mark.parametrize(
    ("question", "reference_answer", "completion"),
    [
        ("How many?", "12", "2*2=4, 4+8=12. Beside 3, 5 and 7 the answer is 12."),
        ("How many?", "12", "It is 12 or 13."),
        ("How many?", "12", "No one knows which one: one of twelve and thirteen."),
        ("How many?", "12", "12, 12.0, 012 or 13"),
        (CHOICES, "B", "I say A or B"),
        ("Ada has 12. How many?", "12", "Ada has 12. How many? She has 12 and that is all."),
        (CHOICES, "B", f"{CHOICES} 5 is prime, so (B)."),
        ("Factor it.", "(x+1)(x+2)", "1 2 3 4 5 6 and (x+1)(x+2) as well"),
    ],
)
def test_what_states_the_right_answer_or_may_state_it_is_no_list(
    question: str, reference_answer: str, completion: str
) -> None:
    assert not lists_answer(question, reference_answer, completion)
