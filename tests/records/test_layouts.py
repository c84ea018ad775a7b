"""Rows as GSM8K, MATH, SVAMP and others publish them become questions and reference answers."""

from decimal import Decimal

import pytest

from cooper_rl.errors import DataError
from cooper_rl.records.layouts import Layout, find_layout, last_boxed, translate

GSM8K = {
    "question": "Natalia sold clips to 48 of her friends in April, and then half as many in May. How many?",
    "answer": "In May: 48/2 = <<48/2=24>>24 clips.\nTogether: 48+24 = <<48+24=72>>72 clips.\n#### 72",
}
MATH = {
    "problem": "What is $f(f(1))$?",
    "level": "Level 5",
    "type": "Algebra",
    "solution": r"First $\boxed{3}$ looks right, but $f(3)=\boxed{\frac{1}{\sqrt{2}}}$.",
}


def _answer(row: dict, **columns) -> str:
    layout = find_layout([row], **columns)
    assert layout is not None
    return translate(row, layout).reference_answer


def test_gsm8k_as_published_keeps_the_number_after_the_marks():
    layout = find_layout([GSM8K])
    assert layout == Layout(("question",), "answer", "gsm8k")
    assert translate(GSM8K, layout) == (GSM8K["question"], "72")


def test_thousands_separators_of_a_whole_number_are_dropped():
    assert _answer(GSM8K | {"answer": "much\n#### 70,000"}) == "70000"
    assert _answer({"question": "Where?", "answer": "(1,234)"}) == "(1,234)"


def test_math_as_published_takes_the_last_box_with_nested_braces():
    layout = find_layout([MATH])
    assert layout == Layout(("problem",), "solution", "boxed")
    assert translate(MATH, layout).reference_answer == r"\frac{1}{\sqrt{2}}"


def test_an_answer_beside_a_solution_wins_and_its_absence_falls_back_to_the_box():
    row = MATH | {"answer": r"\frac{\sqrt{2}}{2}"}
    assert _answer(row) == r"\frac{\sqrt{2}}{2}"
    layout = find_layout([row])
    assert layout is not None
    assert translate(MATH | {"answer": None}, layout).reference_answer == r"\frac{1}{\sqrt{2}}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"so \boxed{\{1, 2\}}.", r"\{1, 2\}"),
        (r"\boxed 7 or so", "7"),
        (r"$\fbox{12}$", "12"),
        (r"\boxed{\text{a } \left( 3, \frac{\pi}{2} \right)}", r"\text{a } \left( 3, \frac{\pi}{2} \right)"),
        (r"cut off \boxed{\frac{1}", None),
        (r"\boxed{}", None),
        ("no box", None),
    ],
)
def test_the_last_box_is_read_with_balanced_braces(text, expected):
    assert last_boxed(text) == expected


def test_svamp_as_published_joins_body_and_question():
    row = {"ID": "chal-1", "Body": "Ann has 8 pens.", "Question": "How many?", "Answer": 8.0, "Equation": "8"}
    layout = find_layout([row])
    assert layout is not None
    assert translate(row, layout) == ("Ann has 8 pens. How many?", "8")


def test_mathodyssey_as_published_stands_in_an_object_and_ends_in_typesetting():
    row = {
        "Problem_7": {
            "question": "Half of three is \\underline{\\hspace{2cm}}.\n\t\n\\end{problem}\t\n\\noindent",
            "answer": "$\\frac{3}{2}$ \\\\\n\n\\noindent",
            "reasoning": "It is $3/2$.",
            "level": "high school mathematics",
        }
    }
    layout = find_layout([row])
    assert layout == Layout(("question",), "answer", "final")
    assert translate(row, layout) == (r"Half of three is \underline{\hspace{2cm}}.", r"$\frac{3}{2}$")


def test_a_long_run_of_spaces_within_a_question_costs_no_more_than_its_length():
    row = {"question": "What" + " " * 1_000_000 + "is it?", "answer": "1"}
    layout = find_layout([row])
    assert layout is not None
    assert translate(row, layout).question == row["question"]


def test_an_answer_of_nothing_but_typesetting_is_empty():
    row = {"Problem_7": {"question": "What?", "answer": "\\\\\n\\noindent"}}
    layout = find_layout([row])
    assert layout is not None
    with pytest.raises(DataError, match="field 'answer' is empty"):
        translate(row, layout)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        *((145.0, "145"), (0.25, "0.25"), (7, "7"), (["2"], "2"), ([3.0], "3"), (" 12 ", "12"), (-0.0, "0")),
        *((1e-7, "0.0000001"), (1e20, "100000000000000000000"), (1e300, "1E+300"), (Decimal("1.50"), "1.5")),
        (Decimal("12345678901234567890123456789.50"), "12345678901234567890123456789.5"),
    ],
)
def test_answers_may_be_numbers_or_lists_of_one(answer, expected):
    assert _answer({"prompt": "How many?", "gold": answer, "difficulty": 3}) == expected


def test_reference_answer_wins_over_other_answer_columns():
    assert _answer({"question": "q", "answer": "long text", "reference_answer": "5"}) == "5"


def test_columns_may_be_named_explicitly():
    row = {"Aufgabe": "Wie viele?", "Loesung": "5", "answer": "not this"}
    assert _answer(row, question_column="Aufgabe", answer_column="Loesung") == "5"
    assert find_layout([row], question_column="Frage") is None


def test_a_damaged_first_row_does_not_decide_the_layout():
    layout = find_layout([["a list"], {"x": 1}, {"question": "q", "answer": 42}, GSM8K, GSM8K])
    assert layout == Layout(("question",), "answer", "gsm8k")


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (["a"], "the row is a list, not an object"),
        ({"answer": "1\n#### 1"}, "field 'question' is missing"),
        ({"question": "q"}, "field 'answer' is missing"),
        ({"question": "  ", "answer": "#### 1"}, "field 'question' is empty"),
        ({"question": None, "answer": "#### 1"}, "field 'question' is null, not text"),
        ({"question": 5, "answer": "#### 1"}, r"field 'question' is 5 \(int\), not text"),
        ({"question": "q", "answer": "72"}, "field 'answer' has no `#### answer` at its end"),
        ({"question": "q", "answer": "so ####  "}, "field 'answer' has no `#### answer` at its end"),
        ({"question": "q", "answer": "#### !?"}, "field 'answer': unparsable reference answer"),
        ({"question": "q", "answer": r"#### \frac{"}, "reference answer .* has a brace without its partner"),
        ({"question": "q", "answer": None}, "field 'answer' is null, not text or a number"),
        ({"question": "q", "answer": True}, r"field 'answer' is True \(bool\), not text or a number"),
        ({"question": "q", "answer": []}, "field 'answer' has 0 answers, not one"),
        ({"question": "q", "answer": ["1", "2"]}, "field 'answer' has 2 answers, not one"),
        ({"question": "q", "answer": float("nan")}, "field 'answer' is nan, not a finite number"),
        ({"question": "q", "answer": 12345678901234567890.5}, "whose last digits a float does not keep"),
        ({"question": "q", "answer": " "}, "field 'answer' is empty"),
    ],
)
def test_a_row_that_cannot_be_used_says_why(row, reason):
    with pytest.raises(DataError, match=reason):
        translate(row, Layout(("question",), "answer", "gsm8k"))


def test_a_solution_without_a_box_says_so():
    with pytest.raises(DataError, match=r"field 'solution' has no \\boxed\{answer\}"):
        translate({"problem": "q", "solution": "It is 5."}, Layout(("problem",), "solution", "boxed"))
