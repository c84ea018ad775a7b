"""Hints of a question: the digits that it asks for, and words that its answer may leave out."""

import pytest

from cooper_rl.config.data import AnswerPolicy
from cooper_rl.verdicts.answers.question import Precision, read_options, read_precision
from cooper_rl.verdicts.answers.verify import verify_answer


@pytest.mark.parametrize(
    ("question", "precision"),
    [
        ("Give your answer to the nearest tenth.", Precision(1, None)),
        ("To the nearest ten-thousandth, what is it?", Precision(4, None)),
        ("How much, to the nearest cent?", Precision(2, None)),
        ("How far is it, to the nearest mile?", Precision(0, None)),
        ("Round to the nearest hundred.", Precision(-2, None)),
        ("Round to the nearest 0.01.", Precision(2, None)),
        ("correct to three significant figures", Precision(None, 3, "", True)),
        ("rounded to 2 decimal places", Precision(2, None)),
        ("Give it to 2 d.p.", Precision(2, None)),
        ("Give it to 2dp", Precision(2, None)),
        ("correct to 3 s.f.", Precision(None, 3, "", True)),
        ("with 3 sig figs", Precision(None, 3, "", True)),
        ("Give it to the nearest percent.", Precision(0, None, "%")),
        ("What percent is that, to the nearest tenth?", Precision(1, None, "%")),
        ("Approximately what percent is that?", Precision(None, 3)),
        ("How far is it to the nearest town?", None),
        ("Give the exact value, to the nearest tenth if you must.", None),
        ("What is the area?", None),
        ("How many meters is that?", Precision(None, 3, "meters")),
        (r"What is the speed, in $\mathrm{km} / \mathrm{h}$?", Precision(None, 3, "km/h")),
        ("Find the area in square feet.", Precision(None, 3, "square feet")),
        ("Find the exact area in square feet.", None),
        ("How many dollars is that?", None),
        ("How many apples are in 3 m?", None),
    ],
)
def test_the_precision_that_a_question_asks_for(question: str, precision: Precision | None) -> None:
    assert read_precision(question) == precision


@pytest.mark.parametrize(
    ("reference_answer", "answer", "question", "verdict"),
    [
        (r"3\sqrt{2}", "4.2", "Give it to the nearest tenth.", "correct"),
        (r"3\sqrt{2}", "4.3", "Give it to the nearest tenth.", "incorrect"),
        (r"117.95\%", r"118\%", "By approximately what percent?", "correct"),
        (r"\frac{600}{7}", "85.71", "rounded to two decimal places", "correct"),
        (r"\frac{600}{7}", "85.7", "rounded to two decimal places", "unparsable"),
        (r"\frac{600}{7}", "85.71", "What is the speed?", "unparsable"),
        (r"\pi", "3.14", "What is the exact area?", "unparsable"),
        (r"\frac{600}{7}", "85.7", "What is the speed, in km/h?", "correct"),
        (r"\frac{600}{7}", "85.9", "What is the speed, in km/h?", "incorrect"),
        (r"\frac{20}{3}", "6.67 min", "How many minutes does it take?", "correct"),
        (r"\frac{20}{3}", "6.67 h", "How many minutes does it take?", "unparsable"),
        (r"\frac{20}{3}", r"6.67\%", "How many minutes does it take?", "incorrect"),
        (r"\frac{600}{7}", "86", "What is the speed, in km/h?", "unparsable"),
        ("40", "40", "How many minutes does it take?", "correct"),
        ("40", "41", "How many minutes does it take?", "incorrect"),
        (r"\frac{600}{7}", "87", "What is the speed, in km/h?", "incorrect"),
        ("1234", "1200", "to the nearest hundred", "correct"),
        ("1234", "1300", "to the nearest hundred", "incorrect"),
        ("2.6", "3", "How far is it to the nearest town?", "incorrect"),
        ("2.6 miles", "3 km", "How far is it, to the nearest mile?", "incorrect"),
        ("0.3333", r"33\%", "Give the answer in percent to the nearest percent.", "correct"),
        ("1/3", r"33\%", "Give the answer in percent to the nearest percent.", "correct"),
        ("1/3", "33", "Give the answer in percent to the nearest percent.", "unparsable"),
        ("1/3", "0.33", "Give the answer in percent to the nearest percent.", "unparsable"),
        ("1/3", r"34\%", "Give the answer in percent to the nearest percent.", "incorrect"),
        ("33.4", "33", "Give the answer in percent to the nearest percent.", "correct"),
        (r"33.4\%", "33", "Give the answer in percent to the nearest percent.", "correct"),
        (r"33.4\%", r"33\%", "Give the answer in percent to the nearest percent.", "correct"),
        (r"33.4\%", "34", "Give the answer in percent to the nearest percent.", "incorrect"),
        (r"33.46\%", r"33.5\%", "What percent is that, to the nearest tenth?", "correct"),
        ("12.345", r"\$12.35", "What percent is off? And the price, to the nearest cent?", "correct"),
        ("1234567", "1,230,000", "Write it correct to 3 significant figures.", "correct"),
        ("1234567", "1,240,000", "Write it correct to 3 significant figures.", "incorrect"),
        ("1234567", "1,200,000", "Write it correct to 3 significant figures.", "incorrect"),
        ("1234567", "1,235,000", "Write it correct to 3 significant figures.", "correct"),
        ("999,960", "1,000,000", "Write it correct to 3 significant figures.", "correct"),
        ("1234567", r"1.23 \times 10^6", "Write it correct to 3 significant figures.", "correct"),
        ("1234567", r"1.24 \times 10^6", "Write it correct to 3 significant figures.", "incorrect"),
        ("0.00012345", r"1.23 \times 10^{-4}", "Write it correct to 3 significant figures.", "correct"),
        ("1234567", "1.23 million", "Write it correct to 3 significant figures.", "correct"),
        ("0.9996", "1", "Write it correct to 3 significant figures.", "incorrect"),
        ("1234567", "1,230,000", "Approximately how many?", "incorrect"),
        ("45678", "46 thousand", "Round to the nearest thousand.", "correct"),
        ("45678", "45 thousand", "Round to the nearest thousand.", "incorrect"),
        ("2/3", "0.67", "Give it to 2 d.p.", "correct"),
        ("2/3", "0.66", "Give it to 2 d.p.", "incorrect"),
    ],
)
def test_a_rounded_answer_is_right_at_the_digits_asked_for(
    reference_answer: str, answer: str, question: str, verdict: str
) -> None:
    assert verify_answer(reference_answer, rf"\boxed{{{answer}}}", question=question).verdict == verdict


TABLE = "Which one?\n\\begin{align*}\n\\text{A)}\\ & k = 0.4 &\n\\text{B)}\\ & \\frac{1}{2} + C\\\\\n"
TABLE += "\\text{C)}\\ & 20 \\  \\text{mph} &\n\\text{D)}\\ & None of these\\\n\\end{align*}"
LINES = r"""Which one?

\noindent Options:\\
A) 15.5 m\\
B) \( \frac{\pi}{2} \)\\
C) \( y = 2(x-1) \)"""


def test_choices_in_a_table_and_on_lines_are_read_without_their_typesetting() -> None:
    assert read_options(TABLE) == {
        "A": "k = 0.4", "B": r"\frac{1}{2} + C", "C": r"20 \text{mph}", "D": "None of these"
    }  # fmt: skip
    assert read_options(LINES) == {"A": "15.5 m", "B": r"\frac{\pi}{2}", "C": "y = 2(x-1)"}


@pytest.mark.parametrize(
    ("reference_answer", "answer", "question", "verdict"),
    [
        ("C", "20 mph", TABLE, "correct"),
        ("C", "21 mph", TABLE, "incorrect"),
        ("A", "k = 0.4", TABLE, "correct"),
        ("A", r"\frac{1}{2} + C", TABLE, "incorrect"),
        ("B", r"0.5 + C", TABLE, "correct"),
        ("C", r"0.5 + C", TABLE, "incorrect"),
        ("C", "Option C", TABLE, "correct"),
        ("C", "Option A", TABLE, "incorrect"),
        ("C", "Option C) 20 mph", TABLE, "correct"),
        ("C", "Option A) 20 mph", TABLE, "incorrect"),
        ("B", r"\pi/2", LINES, "correct"),
        ("C", "y = 2x - 2", LINES, "correct"),
        ("C", "y = 2x - 1", LINES, "incorrect"),
        ("B, C", "[1, 2]", LINES, "unparsable"),
        ("B, C", "C and B", LINES, "correct"),
        ("B, C", "A, C", LINES, "incorrect"),
        ("AB", "x", LINES, "incorrect"),
    ],
)
def test_a_letter_stands_for_the_choice_of_the_question(
    reference_answer: str, answer: str, question: str, verdict: str
) -> None:
    assert verify_answer(reference_answer, f"The answer is {answer}", question=question).verdict == verdict


@pytest.mark.parametrize(
    ("reference_answer", "answer", "question", "verdict"),
    [
        (
            "In the iOS department there are more employees.",
            "iOS",
            "In which department do more employees work?",
            "correct",
        ),
        (
            "The locus of the midpoint of BB' is a circle.",
            "a circle",
            "Find the locus of the midpoint of BB'.",
            "correct",
        ),
        ("fourth", "fourth quadrant", "The point is in which quadrant?", "correct"),
        ("fourth", "third quadrant", "The point is in which quadrant?", "unparsable"),
        ("second quadrant", "second", "", "unparsable"),
        # Both names are in the question: the answer could be either of them.
        ("Bob is taller than Anna", "Anna", "Who is taller, Anna or Bob?", "unparsable"),
        ("The function is not odd", "odd", "Is the function odd?", "unparsable"),
        ("Monday unless it rains", "Monday", "Unless it rains, on which day do they start?", "unparsable"),
        ("The lid isn't oval", "oval", "Why isn't the lid round?", "unparsable"),
        ("a circle without its centre", "a circle", "Find the locus of the centre.", "unparsable"),
        ("at most five", "five", "At most how many can come?", "unparsable"),
        ("half a circle", "a circle", "Half of which figure is it?", "unparsable"),
        ("a circle", "the inside of a circle", "What is inside the region?", "unparsable"),
        ("inversely proportional", "proportional", "Is y inversely related to x?", "unparsable"),
        ("The slope is strictly negative", "negative", "Is the slope strictly monotone?", "unparsable"),
        ("a vertical line", "a line", "Which vertical figure is it?", "unparsable"),
        ("blue and green", "blue", "Which colour is next to green?", "unparsable"),
        ("some students", "all students", "Did all students or some of them pass?", "unparsable"),
        ("the left one", "left", "Which one is it?", "correct"),
        ("half of the cake", "half", "How much of the cake is left?", "correct"),
        ("Anna is the winner", "Anna", "Who is the winner?", "correct"),
        ("The winner is Anna", "Anna", "Who is the winner?", "correct"),
    ],
)
def test_words_of_the_question_may_be_left_out(
    reference_answer: str, answer: str, question: str, verdict: str
) -> None:
    assert (
        verify_answer(reference_answer, rf"\boxed{{\text{{{answer}}}}}", question=question).verdict == verdict
    )


@pytest.mark.parametrize(
    ("reference_answer", "answer", "verdict"),
    [
        ("y=3(x-2)", "y=3x-6", "correct"),
        ("y=3(x-2)", "y=3x-2", "incorrect"),
        (r"4^{\frac{n^2}{4}}", "2^{n^2/2}", "correct"),
        ("x = y = z = 12", "(12, 12, 12)", "correct"),
        ("x = y = z = 12", "(12, 12, 13)", "incorrect"),
        ("a = b = m + p", "(m + p, p + m)", "correct"),
        ("a = b = m + p", "(m + p, m - p)", "incorrect"),
        (
            r"4k\pi \pm \frac{2\pi}{3}, k \in \mathbb{Z}",
            r"\pm\frac{2\pi}{3} + 4k\pi \ (k \in \mathbb{Z})",
            "correct",
        ),
        (r"3 \text{ hours and } 45 \text{ minutes}", r"3.75 \text{ hours}", "correct"),
        (r"\complement_U A = \{x \mid -1 \leq x \leq 3\}", "[-1, 3]", "correct"),
    ],
)
def test_answers_as_another_writer_states_them(reference_answer: str, answer: str, verdict: str) -> None:
    assert verify_answer(reference_answer, rf"\boxed{{{answer}}}").verdict == verdict


def test_a_site_may_refuse_roundings_of_measured_quantities() -> None:
    verdicts = [
        verify_answer(
            r"\frac{600}{7}", r"\boxed{85.7}", question="In km/h?", policy=AnswerPolicy(measured_rounding=on)
        ).verdict
        for on in (True, False)
    ]
    assert verdicts == ["correct", "unparsable"]


@pytest.mark.parametrize("told", ["(A) or 34", "(A) not", "(A) maybe", "(A) 5", r"\text{(A) } 5", "A. 5"])
def test_a_letter_with_a_doubt_or_another_choices_content_is_no_answer(told: str) -> None:
    question = "Which is it? (A) 12 (B) 5 (C) 34"
    for reference in ("A", "(A)"):
        assert verify_answer(reference, rf"\boxed{{{told}}}", question=question).verdict == "unparsable"
        for whole in ("(A) 12", r"(A)\ 12 \text{ cm}", "A. 12", "(A)"):
            completion = rf"\boxed{{{whole}}}"
            assert verify_answer(reference, completion, question=question).verdict == "correct"
