"""Pairs that share numbers or letters but not their meaning, and pairs that differ in form only."""

import pytest

from cooper_rl.verdicts.answers.parts import compare_parts
from cooper_rl.verdicts.answers.structure import parse_structure
from cooper_rl.verdicts.answers.verify import verify_answer

NAMES = [
    ("x=1,y=2", "y=2,x=1", "correct"),
    ("x=1,y=2", "1,2", "correct"),
    ("1,2", r"x=1 \text{ or } x=2", "correct"),
    ("f(1)=2, f(2)=3", "f(2)=3, f(1)=2", "correct"),
    ("(3,4)", "x=3,y=4", "correct"),
    ("x=1,y=2", "x=2,y=1", "incorrect"),
    ("x=1,y=2", "(x,y)=(2,1)", "incorrect"),
    (r"x=\frac12,y=\sqrt2", r"x=\sqrt2,y=\frac12", "incorrect"),
    ("f(1)=2, f(2)=3", "f(1)=3, f(2)=2", "incorrect"),
    ("(3,4)", "x=4,y=3", "incorrect"),
    ("x=1,y=2", "3,1", "incorrect"),
    ("x=1,y=2", "2,1", "unparsable"),
    ("1,2", "x=2,y=1", "unparsable"),
    ("x=1,y=2", "a=1,b=2", "unparsable"),
    ("(3,4)", "y=4,x=3", "unparsable"),
    ("(3,4)", "y=3,x=4", "unparsable"),
]


@pytest.mark.parametrize(("reference_answer", "answer", "verdict"), NAMES)
def test_what_a_part_is_called_decides_what_it_is_compared_with(
    reference_answer: str, answer: str, verdict: str
) -> None:
    assert verify_answer(reference_answer, rf"\boxed{{{answer}}}").verdict == verdict


SCALES = [
    ("1.2 million", "1200000", "correct"),
    ("1200000", r"1.2 \text{ million}", "correct"),
    ("3,000,000 people", "3 million people", "correct"),
    ("$2 million", r"\$2,000,000", "correct"),
    ("3 hundred", "300", "correct"),
    ("600000", "6 hundred thousand", "correct"),
    ("4 dozen eggs", "48 eggs", "correct"),
    ("3 million", "2 million", "incorrect"),
    ("5", "5 million", "unparsable"),
    ("5 billion", "5", "unparsable"),
    ("7", "7 hundred", "unparsable"),
    ("4", "4 dozen", "unparsable"),
    ("$3 million", r"\$3", "unparsable"),
]


@pytest.mark.parametrize(("reference_answer", "answer", "verdict"), SCALES)
def test_a_word_that_multiplies_a_number_is_no_unit(reference_answer: str, answer: str, verdict: str) -> None:
    assert verify_answer(reference_answer, rf"\boxed{{{answer}}}").verdict == verdict


@pytest.mark.parametrize(
    ("completion", "reference_answer", "verdict"),
    [
        ("So it is worth 5 million.", "5000000", "correct"),
        ("So it is worth 5 million.", "5", "unparsable"),
        (r"That makes \$3 thousand in all.", "3000", "correct"),
        ("That makes $6$ hundred thousand people.", "600000", "correct"),
        (r"So \(4\) dozen are left.", "4", "unparsable"),
        ("The answer is that there are 5 Million of them.", "5", "unparsable"),
        ("So he has 12 hundred-dollar bills.", "12", "correct"),
        ("So that is 4 thousandths.", "4000", "unparsable"),
    ],
)
def test_a_word_that_multiplies_a_number_belongs_to_it_in_prose_too(
    completion: str, reference_answer: str, verdict: str
) -> None:
    assert verify_answer(reference_answer, completion).verdict == verdict


@pytest.mark.parametrize(
    ("reference_answer", "answer"),
    [
        ("4", "4 thousandths"), ("3", "3 tenths"), ("2", "2 thirds"), ("5", "5 halves"), ("3", "3 squared"),
        ("5", "5 more than x"), ("6", "6 increased by x"), ("5", "5 below zero"), ("5", "5 m less than x"),
    ],
)  # fmt: skip
def test_words_that_go_on_with_the_mathematics_are_no_unit(reference_answer: str, answer: str) -> None:
    assert verify_answer(reference_answer, rf"\boxed{{{answer}}}").verdict == "unparsable"


@pytest.mark.parametrize(("reference_answer", "answer"), [("1000", "1 000"), ("10000", r"10\,000")])
def test_a_space_between_groups_of_thousands_is_nothing(reference_answer: str, answer: str) -> None:
    assert verify_answer(reference_answer, rf"\boxed{{{answer}}}").verdict == "correct"


@pytest.mark.parametrize(
    ("reference_answer", "answer"),
    [("12", "1 2"), ("42", "4 2"), ("12", r"1\quad 2"), ("1 2", "12"), ("3", "1 2")],
)
def test_any_other_space_between_digits_parts_two_numbers(reference_answer: str, answer: str) -> None:
    assert verify_answer(reference_answer, rf"\boxed{{{answer}}}").verdict == "unparsable"


@pytest.mark.parametrize("answer", ["(A) or (B)", "(A), (B), (C)", "A. or B.", "(B) or (A)", "A) and B"])
def test_more_than_one_choice_is_none(answer: str) -> None:
    assert verify_answer("A", rf"\boxed{{{answer}}}").verdict == "unparsable"


@pytest.mark.parametrize(
    "answer", ["(A) 12", "A. Vitamin C and sugar", r"\textbf{(A)}\ x = 5", "A) Vitamin A", "A. x = B"]
)
def test_a_choice_may_be_followed_by_what_it_says(answer: str) -> None:
    assert verify_answer("A", rf"\boxed{{{answer}}}").verdict == "correct"
    assert verify_answer("B", rf"\boxed{{{answer}}}").verdict == "incorrect"


@pytest.mark.parametrize(
    "completion",
    [
        "The answer is definitely not equal to 5.",
        "The answer is something greater than 5.",
        "The answer is certainly less than the number 5.",
        "The answer is surely at least $5$ for now.",
        "The answer cannot be 5.",
        "The answer can't be 5.",
        "It is not 5.",
        "The total cannot be 5.",
        "There are 5 of them, not 6.",
        "It is not 5 of the many apples that are in the basket of the old farmer.",
    ],
)
def test_a_number_that_a_sentence_denies_is_not_its_answer(completion: str) -> None:
    assert verify_answer("5", completion).verdict == "unparsable"


@pytest.mark.parametrize(
    "completion",
    [
        "The answer is not 4, it is 5.",
        "The answer is certainly what we found, 5.",
        "It cannot be negative, so the answer is 5.",
        "Since 4 is not enough we need 5 of them.",
        "The answer to how many more than Tom is 5.",
    ],
)
def test_a_number_in_a_sentence_that_denies_another_is_its_answer(completion: str) -> None:
    assert verify_answer("5", completion).verdict == "correct"


@pytest.mark.parametrize(
    ("reference_answer", "answer", "verdict"),
    [
        ("€20", "20 euros", "correct"),
        ("$20", "20 dollars", "correct"),
        ("20", "€20", "correct"),
        ("$20", "€20", "unparsable"),
        ("£20", "$20$", "correct"),
    ],
)
def test_a_currency_is_that_of_its_sign(reference_answer: str, answer: str, verdict: str) -> None:
    assert verify_answer(reference_answer, rf"\boxed{{{answer}}}").verdict == verdict


BRACKETS = [
    (r"\{1,2\}", "2,1", "correct"),
    ("1,2", "(1,2)", "correct"),
    ("[1,2,3]", "1,2,3", "correct"),
    (r"[0,1]\cup[1,2]", "[0,2]", "correct"),
    ("[1,3]", r"\{1,2\}", "incorrect"),
    ("[1,2]", r"\{1,2\}", "unparsable"),
    (r"\{1,2\}", "[1,2]", "unparsable"),
    ("(1,2)", r"\{1,2\}", "unparsable"),
    ("[1,2]", "1,2", "unparsable"),
]
SEVERAL = [
    ("1000.99", "1000,99", "correct"),
    (r"25\%", "0,25", "correct"),
    (r"25\%", "0,26", "incorrect"),
    ("0,25", r"25\%", "unparsable"),
    ("14:30", "14.30", "unparsable"),
    ("14:30", "14.31", "incorrect"),
    ("9.05", "9:05", "unparsable"),
    ("2/3", "0.6 repeating", "correct"),
    ("2/3", r"0.666\text{ recurring}", "correct"),
    ("2/3", "0.7 repeating", "incorrect"),
    ("1/6", "0.16 repeating", "unparsable"),
    ("0.3 repeating", "1/3", "correct"),
    ("3,456", "3456", "correct"),
    ("2", "2,2", "incorrect"),
    ("1,1", "1", "incorrect"),
    ("13.5", "13,4", "incorrect"),
    ("8", "8 or 9", "incorrect"),
    ("0.5", r"\frac{1}{2} \text{ or } 0.5", "unparsable"),
    (r"\frac{1}{2}", "1/2, 0.5", "unparsable"),
    ("11", r"7 \text{ goats and } 4 \text{ helicopters}", "unparsable"),
]


@pytest.mark.parametrize(("reference_answer", "answer", "verdict"), BRACKETS)
def test_an_interval_is_no_set_of_its_ends(reference_answer: str, answer: str, verdict: str) -> None:
    assert verify_answer(reference_answer, rf"\boxed{{{answer}}}").verdict == verdict


@pytest.mark.parametrize(("reference_answer", "answer", "verdict"), SEVERAL)
def test_several_numbers_are_not_one(reference_answer: str, answer: str, verdict: str) -> None:
    assert verify_answer(reference_answer, rf"\boxed{{{answer}}}").verdict == verdict


@pytest.mark.parametrize(
    ("reference_answer", "answer", "verdict"),
    [
        (r"90^\circ", "90", "correct"),
        ("3+4i", "3+4j", "correct"),
        ("1+2i", "1-2i", "incorrect"),
        ("(1+i)^2", "2i", "unparsable"),
        ("i^2", "-1", "unparsable"),
        (r"\sin 30^\circ", "0.5", "unparsable"),
        ("30", r"\sin 30^\circ", "unparsable"),
    ],
)
def test_degrees_and_the_imaginary_unit_are_no_letters(
    reference_answer: str, answer: str, verdict: str
) -> None:
    assert verify_answer(reference_answer, rf"\boxed{{{answer}}}").verdict == verdict


@pytest.mark.parametrize(
    ("reference_answer", "answer", "verdict"),
    [
        ("5 pm", "5 PM", "correct"),
        ("10:00 AM", "10:00 am", "correct"),
        ("10:00 a.m.", r"10 \text{ AM}", "correct"),
        ("5 am", "5 pm", "incorrect"),
        ("5:30 PM", "5:45 PM", "incorrect"),
        ("5:30 PM", "5:30", "unparsable"),
        ("5:30 PM", "17:30", "unparsable"),
        (r"5 \text{ pm}", r"5 \text{ am}", "incorrect"),
        (r"5 \text{ p.m.}", "5", "unparsable"),
    ],
)
def test_a_time_of_day_is_in_the_morning_or_not(reference_answer: str, answer: str, verdict: str) -> None:
    assert verify_answer(reference_answer, rf"\boxed{{{answer}}}").verdict == verdict


@pytest.mark.parametrize(
    ("reference_answer", "answer", "verdict"),
    [
        (r"16\pi", r"16\pi \text{ cm}^2", "correct"),
        (r"16\pi \text{ cm}^2", r"16\pi", "correct"),
        (r"16\pi", r"16\pi \text{ square cm}", "correct"),
        (r"5\sqrt{2}", r"\sqrt{50} km", "correct"),
        (r"2\sqrt{3}\text{ units}", r"2\sqrt{3}", "correct"),
        (r"x+1 \text{ cm}", "x+1", "correct"),
        (r"5\sqrt{2}", r"4\sqrt{2} \text{ m}^2", "incorrect"),
        (r"5\sqrt2 \text{ m}", r"5\sqrt2 \text{ cm}", "unparsable"),
        (r"4\pi\text{ m}^2", r"4\pi\text{ cm}^2", "unparsable"),
        (r"10\sqrt2 \text{ percent}", r"\frac{\sqrt2}{10}", "unparsable"),
        ("3 cm, 4 m", "4 m, 3 cm", "correct"),
        ("3 cm, 4 m", "4 cm, 3 m", "incorrect"),
        (r"\sqrt2", r"\sqrt2" + r"\text{cm}" * 1000, "unparsable"),
    ],
)
def test_an_expression_has_a_unit_as_a_number_has(reference_answer: str, answer: str, verdict: str) -> None:
    assert verify_answer(reference_answer, rf"\boxed{{{answer}}}").verdict == verdict


EQUATIONS = [
    ("y=2x+1", "2x-y+1=0", "correct"),
    ("x+y=3", "y=3-x", "correct"),
    ("3x+4y=12", r"y=-\frac34x+3", "correct"),
    ("y=x^2", "x^2=y", "correct"),
    ("y=2x", r"x=\frac{y}{2}", "correct"),
    ("x=2", "2=x", "correct"),
    ("y=x", "x=y", "correct"),
    ("a_n=2^n", "2^n=a_{n}", "correct"),
    ("x=5", "2+3=5", "correct"),
    ("y=2x+1", "y=2x+2", "incorrect"),
    ("x^2+y^2=4", "x^2+y^2=5", "incorrect"),
    ("y=3-x", "x+y=4", "incorrect"),
    ("xy=1", r"y=\frac1x", "unparsable"),
    ("x=3", "x^2=9", "unparsable"),
    ("x=y", "y=x^{10^{10}}", "unparsable"),
]


@pytest.mark.parametrize(("reference_answer", "answer", "verdict"), EQUATIONS)
def test_an_equation_may_be_solved_for_another_variable(
    reference_answer: str, answer: str, verdict: str
) -> None:
    assert verify_answer(reference_answer, rf"\boxed{{{answer}}}").verdict == verdict


@pytest.mark.parametrize(
    ("reference_answer", "answer", "verdict"),
    [
        ("-1<x<2", "2>x>-1", "correct"),
        (r"1\le x<2", r"2>x\ge1", "correct"),
        ("[1,2)", r"2>x\ge1", "correct"),
        (r"1\le x<2", r"2\ge x>1", "incorrect"),
        ("-1<x<2", "2>x>-3", "incorrect"),
        ("[-2,2]", r"|x|\le2", "correct"),
        ("[-2,2]", r"|x|<2", "incorrect"),
        (r"x<-2 \text{ or } x>2", "|x|>2", "correct"),
    ],
)
def test_an_inequality_reads_the_same_from_its_other_end(
    reference_answer: str, answer: str, verdict: str
) -> None:
    assert verify_answer(reference_answer, rf"\boxed{{{answer}}}").verdict == verdict


RATIOS = [
    ("3:4", "6:8", "correct"),
    ("3:4", "3 to 4", "correct"),
    ("3:4", r"\frac34", "correct"),
    (r"\frac34", "3:4", "correct"),
    ("3:0.5", "6:1", "correct"),
    ("3:0", "3:0", "correct"),
    ("3:4", "4:3", "incorrect"),
    ("3:4", "0.8", "incorrect"),
    ("3:0", "4:0", "incorrect"),
    ("7:05", "14:10", "incorrect"),
    ("5:30 PM", "5:45", "unparsable"),
    ("5:30", "5:45 PM", "unparsable"),
]
UNITS = [
    ("5 units", "5 cm", "correct"),
    ("5 cm", "5 units", "correct"),
    ("5 units", "6 cm", "incorrect"),
    ("12 apples", "13 pears", "incorrect"),
    ("5 km", "6 pears", "incorrect"),
    ("5 pears", "6 km", "incorrect"),
    ("5 km", "5 pears", "unparsable"),
    ("204_5", "204", "correct"),
    ("204_5", "205", "incorrect"),
    ("1011_2", "11_{10}", "correct"),
]
ROUNDED = [
    ("0.33", r"\frac13", "correct"),
    (r"33.33\%", r"\frac13", "correct"),
    (r"33.33\%", r"\frac{100}{3}\%", "correct"),
    ("0.3", r"\frac13", "incorrect"),
    ("0.34", r"\frac13", "incorrect"),
    ("0.00", r"\frac{1}{300}", "incorrect"),
    ("2.00", "1.999", "incorrect"),
    ("0.59", "0.5941", "unparsable"),
    ("0.59", "0.595", "unparsable"),
    ("0.59", "0.596", "incorrect"),
    ("0.59", "0.5951", "incorrect"),
    ("0.5", "0.52", "incorrect"),
    (r"33.33\%", "33.334", "incorrect"),
    (r"\frac13", r"33.33\%", "unparsable"),
    (r"\frac13", r"33.5\%", "incorrect"),
    ("0.1234", r"12.3\%", "unparsable"),
    ("0.123", r"12.34\%", "incorrect"),
    (r"\frac14", r"25.01\%", "incorrect"),
]
WORDS = [
    ("Tuesday", r"\text{tuesday}", "correct"),
    ("line segment, circle", r"\text{line segment and circle}", "correct"),
    ("Tuesday", "yes", "unparsable"),
    ("12", "no solution", "unparsable"),
    ("no solution", "12", "unparsable"),
    ("No", "0", "unparsable"),
    ("Yes", "5", "unparsable"),
]
TORN = [
    ("8", "The answer is 8\\sqrt{2", "unparsable"),
    (r"\frac{4}{9}", "The answer is \\frac{4}{9", "unparsable"),
    ("4", "The answer is The limit is $\\lim_{x\\to 4", "unparsable"),
    ("0", r"The answer is $> 0$", "unparsable"),
    ("0", r"The answer is $\ge 0$", "unparsable"),
    ("3", r"The answer is $3 <$", "unparsable"),
    ("> 0", r"The answer is $> 0$", "correct"),
]
"""What math-verify reads in part: it takes `8\\sqrt{2` for 8."""
SPELLED = [
    (r"\frac{1}{2} \ln(y+1)", "The answer is 1/2 ln (y + 1)", "correct"),
    (r"\frac{1}{2} \ln(y+1)", r"The answer is 1/2 \ln(y + 1)", "correct"),
    (r"\frac{1}{2} \ln(y+1)", "The answer is 1/3 ln (y + 1)", "incorrect"),
    (r"\frac{1}{2\ln(y+1)}", "The answer is 1/2 ln (y + 1)", "incorrect"),
    (r"5\ln|x|", r"The answer is 5\\ln\\left|x\\right|", "correct"),
    (r"2\theta^2", r"The answer is 2\\theta^2", "correct"),
    (r"7\sqrt{2}", 'The answer is 7\\sqrt{2} cm"', "correct"),
    ("34", 'The answer is 34"', "correct"),
]
YES_OR_NO = [
    ("No", "The answer is No, the series has no value near $x = 0$.", "correct"),
    ("Yes", "The answer is No, the series has no value near $x = 0$.", "incorrect"),
    ("No", "The answer is No significant difference at the 0.05 level.", "unparsable"),
    ("0.05", "The answer is No significant difference at the 0.05 level.", "unparsable"),
    ("5", "The answer is that she has 5 apples.", "correct"),
]

SEARCHED = [
    ("x=1, y=2", "x=1 or y=2", "unparsable"),
    ("x=1 or x=2", "x=1, x=2", "correct"),
    ("3A2", "2A3", "unparsable"),
    ("CO2", "C2O", "unparsable"),
    ("H2O", r"\text{H}_2\text{O}", "correct"),
    ("0,5", "-0,5", "unparsable"),
    ("0,5", "0,05", "unparsable"),
    ("3,5", "5,3", "correct"),
    ("f^{-1}(x)", "1/f(x)", "unparsable"),
    ("x^{-1}", "1/x", "correct"),
    ("Paul", "Paul came last", "unparsable"),
    ("Paul", "Paul wins the game", "correct"),
    ("Paul will receive the last token.", "Paul", "correct"),
    ("1, 3, 5, ...", "1, 3, 5", "unparsable"),
    ("1, 3, 5", r"1, 3, 5, \ldots", "unparsable"),
    (r"1, 3, 5, \dots", "1, 3, 5, ...", "correct"),
    (r"\frac13", r"33.\overline{3}\%", "correct"),
    (r"33.(3)\%", r"\frac13", "correct"),
    (r"\frac13", r"3.\overline{3}\%", "incorrect"),
]
"""Found by a search over generated answers."""


@pytest.mark.parametrize(("reference_answer", "completion", "verdict"), [*TORN, *SPELLED, *YES_OR_NO])
def test_an_answer_is_read_as_a_whole_or_not_at_all(
    reference_answer: str, completion: str, verdict: str
) -> None:
    assert verify_answer(reference_answer, completion).verdict == verdict


@pytest.mark.parametrize(
    ("reference_answer", "answer", "verdict"), [*RATIOS, *UNITS, *ROUNDED, *WORDS, *SEARCHED]
)
def test_ratios_units_rounding_words_and_forms_are_compared_exactly(
    reference_answer: str, answer: str, verdict: str
) -> None:
    assert verify_answer(reference_answer, rf"\boxed{{{answer}}}").verdict == verdict


def test_the_lower_bound_of_a_sum_is_not_its_value() -> None:
    check = verify_answer("1", r"\boxed{\sum_{n=1}^{3} \frac{1}{n^2}}")
    assert check.verdict != "correct"


HIDDEN = [
    (r"m n-\lfloor m / 2\rfloor", r"m n-\lfloor m / 8\rfloor", "incorrect"),
    (r"\lfloor\sqrt{n-1}\rfloor", r"\lfloor\sqrt{n-2}\rfloor", "incorrect"),
    (r"\lfloor x\rfloor", r"\lceil x\rceil-1", "incorrect"),
    (r"\lfloor x/2\rfloor", r"\lfloor\frac{x}{2}\rfloor", "correct"),
    (r"k\\(4k^2-1)", r"k\\(9k^2-1)", "unparsable"),
    (
        "f(x)=ax, where b is odd, and a is even with c=0",
        "f(x)=ax, where b is odd, and a is even with c=8",
        "unparsable",
    ),
]


@pytest.mark.parametrize(("reference_answer", "answer", "verdict"), HIDDEN)
def test_a_difference_out_of_sight_is_no_equality(reference_answer: str, answer: str, verdict: str) -> None:
    """Found by changing a digit of every reference answer of OlympiadBench."""
    assert verify_answer(reference_answer, rf"\boxed{{{answer}}}").verdict == verdict


def test_sets_of_sets_are_compared_in_bounded_time() -> None:
    """Each inner set may meet each, and each of their elements each of theirs."""
    left, right = (
        r"\{"
        + ", ".join(r"\{" + ", ".join(f"{name}{i}{j}" for j in range(11)) + r"\}" for i in range(11))
        + r"\}"
        for name in "ab"
    )
    assert (
        compare_parts(parse_structure(left), parse_structure(right), lambda *_: pytest.fail("compared"))
        is None
    )
