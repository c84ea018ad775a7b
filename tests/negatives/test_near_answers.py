"""Texts with the right answer in them that are wrong: made only where that is certain."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cooper_rl.domains.mathematics import MATHEMATICS
from cooper_rl.negatives.canaries import Case
from cooper_rl.negatives.near_answers import hedge_near_miss, negate_answer, scale_answer
from cooper_rl.schema.data import VerifyExample
from cooper_rl.verdicts.answers.verify import verify_answer

ATTACKS = (negate_answer, scale_answer, hedge_near_miss)


def case(reference_answer: str, question: str = "How many?") -> Case:
    return Case(
        VerifyExample(question=question, reference_answer=reference_answer, completion="", label=0),
        None,
        None,
    )


def all_texts(reference_answer: str, suffix: str = "") -> dict[str, set[str]]:
    """Every text of each attack: the spelling is chosen by the question."""
    cases = [case(reference_answer, f"How many of {number}?{suffix}") for number in range(60)]
    return {make.__name__: {text for each in cases if (text := make(each)) is not None} for make in ATTACKS}


def test_the_right_number_is_denied_moved_and_left_for_the_next() -> None:
    assert all_texts("12") == {
        "negate_answer": {
            "The answer is not 12.",
            "The final answer is anything but 12.",
            "\\boxed{12} is not the answer.",
            "#### not 12",
        },
        "scale_answer": {
            *("The answer is 120.", "\\boxed{120}", "#### 120"),
            *("The answer is 1.2.", "\\boxed{1.2}", "#### 1.2"),
        },
        "hedge_near_miss": {
            "The answer is 12 or 13, probably 13.",
            "It is either 12 or 13. I would say 13.",
            "At first I found 12, but 13 is more likely. The answer is 13.",
        },
    }


@pytest.mark.parametrize(
    ("reference_answer", "scaled", "near"),
    [
        ("12.50", {"125", "1.25"}, "12.51"),
        ("-3", {"-30", "-0.3"}, "-4"),
        ("1,250", {"12500", "125"}, "1251"),
        ("$40", {"$400", "$4"}, "$41"),
        ("9 cm", {"90 cm", "0.9 cm"}, "10 cm"),
        ("20\\%", {"200\\%", "2\\%"}, "21\\%"),
    ],
)
def test_signs_decimals_and_units_stay(reference_answer: str, scaled: set[str], near: str) -> None:
    made = all_texts(reference_answer)
    boxed = {text[7:-1] for text in made["scale_answer"] if text.startswith("\\boxed")}
    assert boxed == scaled
    assert f"It is either {reference_answer} or {near}. I would say {near}." in made["hedge_near_miss"]


@pytest.mark.parametrize("reference_answer", ["B", "x + 12", "(3, 4]", "Monday", "5x", "\\frac{1}{2}", "3!"])
def test_without_a_number_there_is_only_a_denial(reference_answer: str) -> None:
    made = all_texts(reference_answer)
    assert len(made["negate_answer"]) == 4
    assert made["scale_answer"] == made["hedge_near_miss"] == set()


def test_zero_has_no_decimal_point_to_move() -> None:
    assert all_texts("0")["scale_answer"] == set()


@pytest.mark.parametrize(
    ("question", "reference_answer", "is_made"),
    [
        ("What is it, to the nearest ten?", "12.4", False),  # 12.5 is rounded to 10 as well
        ("About how many metres is it?", "1234", False),
        ("About how many people came?", "1234", False),
        ("About how many people came?", "12", True),
        ("How many metres is it?", "12.375", False),
        ("How many people came?", "1234", True),
    ],
)
def test_a_near_miss_that_may_be_right_is_left_out(
    question: str, reference_answer: str, is_made: bool
) -> None:
    assert (hedge_near_miss(case(reference_answer, question)) is not None) is is_made


QUESTIONS = (
    *("", "How many metres is it?", "About how many?", "Round your answer to the nearest whole number."),
    "Give it to two decimal places.",
)
UNITS = ("", " cm", "%", " apples", " million")


@settings(deadline=None, max_examples=300)
@given(
    whole=st.integers(0, 10**6),
    decimals=st.sampled_from(("", ".5", ".25", ".125", ".0")),
    unit=st.sampled_from(UNITS),
    question=st.sampled_from(QUESTIONS),
    number=st.integers(0, 99),
)
def test_the_rule_verifier_calls_none_of_them_right(
    whole: int, decimals: str, unit: str, question: str, number: int
) -> None:
    made = case(f"{whole}{decimals}{unit}", f"Question {number}. {question}")
    for make in ATTACKS:
        text = make(made)
        if text is not None:
            check = verify_answer(made.example.reference_answer, text, question=made.example.question)
            assert check.verdict != "correct", (text, check)


@pytest.mark.parametrize(
    "reference_answer", ["yes", "no solution", "\\emptyset", "not possible", "B", "0", "-1"]
)
def test_a_denial_is_wrong_whatever_the_answer_is(reference_answer: str) -> None:
    for text in all_texts(reference_answer, " Or is it not?")["negate_answer"]:
        assert verify_answer(reference_answer, text).verdict != "correct"


def test_all_three_are_canaries() -> None:
    rows = [VerifyExample(question="What is 3*4?", reference_answer="12", completion="", label=0)]
    found = MATHEMATICS.make_canaries(rows, max_problems=1, rng=random.Random(0))
    assert {"negated_answer", "scaled_answer", "hedged_near_miss"} <= {canary.attack for canary in found}
