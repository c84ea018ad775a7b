"""Answers that hold the right one beside others: what algebra skips must not make them correct."""

import pytest

from cooper_rl.verdicts.answers.verify import verify_answer


@pytest.mark.parametrize(
    ("reference_answer", "answer"),
    [
        ("6", r"5 \mid 6"),
        ("6", r"5 \Rightarrow 6"),
        ("6", "5 (or 6)"),
        ("6", "1 ? 2 ? 3 ? 4 ? 5 ? 6"),
        ("1", "1|2|3|4|5|6"),
        ("5", "5..6"),
        ("5", r"5 \approx 6"),
        ("5", "5或6"),
        ("5", "не 5"),
        ("5", "5万"),
        ("5", r"\neg 5"),
        ("5", "x <> 5"),
        ("5", r"x \not= 5"),
        ("0", "0x1F"),
        ("a+b+c", "a+b+c+1"),
        ("mx+c", "mx+c+2"),
        ("3n+k", "3n+k-4"),
        ("A+B+C", "A+B+C+1"),
        ("10-20", "20-30"),
        ("3-1", "4-2"),
        ("2021-10-05", "2021-05-10"),
        ("5", "5 dozens"),
        ("5", "5 millions"),
        ("5", "5 lakh"),
        ("5", "5 doubled"),
        ("5", "5 apples or more"),
        ("Alice: 5, Bob: 3", "Alice: 3, Bob: 5"),
        ("Maximum: 5, Minimum: 2", "Maximum: 2, Minimum: 5"),
        ("5 MW", "5 mW"),
        ("5 mPa", "5 MPa"),
        ("5 mA", "5 MA"),
        ("6", "2x = 6"),
        ("6", "-x = 6"),
        ("6", "x^2 = 6"),
        ("6", r"\frac{x}{2} = 6"),
        ("6", r"\sqrt{t} = 6"),
        ("|x+2|", "x+2"),
        ("|x-10|", "10-x"),
        ("0.5", "0.5 (1/3)"),
        ("2x", "x2"),
        ("12", "1'2"),
        (r"\emptyset", r"\{\emptyset\}"),
        ("A", "A)B)"),
        ("f(x)=x+1", "f(y)=x+1"),
        ("f(x)=x+1", "g(x)=x+1"),
    ],
)
def test_an_answer_with_more_in_it_is_never_correct(reference_answer: str, answer: str) -> None:
    assert verify_answer(reference_answer, rf"\boxed{{{answer}}}").verdict == "unparsable"


@pytest.mark.parametrize(
    ("sentence", "verdict"),
    [
        ("the square root of 16", "unparsable"),
        ("half of the 16", "unparsable"),
        ("two thirds of 16", "unparsable"),
        ("the tithe of 16", "unparsable"),
        ("the 16 and eleven", "unparsable"),
        ("equal to a sum of 16 apples", "correct"),
        ("given by twice 16", "unparsable"),
        ("16 more than her brother's", "unparsable"),
        ("a total of 16 apples", "correct"),
        ("that she has 16 more apples", "correct"),
    ],
)
def test_a_number_that_words_change_is_no_answer(sentence: str, verdict: str) -> None:
    assert verify_answer("16", f"The answer is {sentence}.").verdict == verdict


@pytest.mark.parametrize("marked", [r"\boxed{45}", "#### 45", "**Final answer: 45**"])
def test_an_answer_that_a_later_sentence_contradicts_is_none(marked: str) -> None:
    for reference in ("45", "46"):
        assert verify_answer(reference, f"{marked}\n\nThe answer is 46.").verdict == "unparsable"
    assert verify_answer("45", f"{marked}\n\nThe answer is 45.0 apples.").verdict == "correct"


def test_a_comma_before_three_digits_may_group_thousands() -> None:
    assert verify_answer("5600", "#### 5600,000").verdict == "unparsable"
    assert verify_answer("1000.99", "#### 1000,99").verdict == "correct"


@pytest.mark.parametrize("joiner", ["or", "and"])
def test_a_number_beside_one_in_words_is_no_answer(joiner: str) -> None:
    assert verify_answer("16", f"It is 16 {joiner} eleven.").verdict == "unparsable"


@pytest.mark.parametrize(
    "completion", ["\\boxed{5}\n\nWait, that is wrong.", r"\boxed{5} (wrong)", r"\boxed{5} isn't right."]
)
def test_a_box_that_is_taken_back_states_nothing(completion: str) -> None:
    assert verify_answer("5", completion).verdict == "unparsable"


@pytest.mark.parametrize(
    ("reference_answer", "answer"),
    [
        ("10^{6}", "1{,}000{,}000"),
        ("(x+1)^{500}", "(1+x)^{500}"),
        (r"\cos(7y)+\sin(7x)", r"\sin(7x)+\cos(7y)+0"),
        (r"2\sqrt{3}+x^2", r"x^2+\sqrt{12}"),
        ("x^2+C", "x^2+K"),
        ("x^2+C", "x^2+5+C"),
        ("x^2+c", "c+x^2"),
        ("10-20", "10 - 20"),
        ("Alice: 5, Bob: 3", "Bob: 3; Alice: 5.0"),
        ("Length: 5 cm", "Length: 5cm"),
        ("5 MW", "5MW"),
        ("6", "x = 6"),
        ("6", "f(2) = 6"),
        ("f(x) = x+1", "f(t) = t+1"),
        ("x2", "x2"),
        ("6", "a_{n+1} = 6"),
        ("6", "2+4 = 6"),
        ("x+2", "2+x"),
        ("|x-10|", "|10-x|"),
        ("1/2", "0.5 (1/2)"),
        ("0.5", "0.5 (or 1/2)"),
        ("2 gallons", "8 quarts"),
        ("2000 kW", "2 MW"),
        ("2 years", "24 months"),
    ],
)
def test_what_is_read_whole_stays_correct(reference_answer: str, answer: str) -> None:
    assert verify_answer(reference_answer, rf"\boxed{{{answer}}}").verdict == "correct"


def test_two_values_against_one_raise_nothing() -> None:
    assert verify_answer(r"x = 9 \pm \sqrt{6}", r"\boxed{9+\sqrt{6}}").verdict == "unparsable"


@pytest.mark.parametrize(("end", "verdict"), [("", "unparsable"), ('"', "correct"), ('"}', "correct")])
def test_a_json_string_that_was_cut_states_nothing(end: str, verdict: str) -> None:
    completion = '{"answer": "12' + end
    assert verify_answer("12", completion, finish_reason="length").verdict == verdict
    assert verify_answer("12", completion).verdict == "correct"


TRUE_EQUATIONS = [
    r"\log_{25}(125) = \frac{3}{2}",
    r"\log_9 27 = \frac{3}{2}",
    r"4 \cdot 5 = 20",
    r"2 \cdot 10 = 20",
]
ROUNDED_EQUATIONS = [r"30 \cos(\frac{\pi}{5}) = 24.27", r"50 \sin(\frac{\pi}{7}) = 21.69"]


@pytest.mark.parametrize("reference_answer", TRUE_EQUATIONS + ROUNDED_EQUATIONS)
def test_an_equation_without_variables_equals_itself_alone(reference_answer: str) -> None:
    for answer in TRUE_EQUATIONS + ROUNDED_EQUATIONS:
        expected = "correct" if answer == reference_answer else "unparsable"
        assert verify_answer(reference_answer, rf"\boxed{{{answer}}}").verdict == expected


@pytest.mark.parametrize(
    ("reference_answer", "equal", "others"),
    [
        (r"KL \cdot MN", r"NM \cdot LK", [r"KM \cdot LN", r"KN \cdot LM"]),
        ("E[X^2] - E[X]^2", "E[X^{2}]-E[X]^{2}", ["-E[X]^2", "0", "2E[X^2] - 2E[X]^2"]),
        (
            r"\frac{\partial u}{\partial t}",
            r"\frac{ \partial u }{ \partial t }",
            [r"\frac{\partial u}{\partial x}", "0"],
        ),
        (r"\frac{du}{dt}", r"\frac{ du }{ dt }", ["0", r"\frac{du}{dx}", r"2\frac{du}{dt}"]),
        (r"\frac{d^2y}{dx^2}", r"\frac{d^{2}y}{dx^{2}}", ["0", r"\frac{dy}{dx}", r"\frac{y}{x^2}"]),
        (r"\mathbf{u} \times \mathbf{v}", r"\mathbf{u}\times\mathbf{v}", [r"\mathbf{v} \times \mathbf{u}"]),
        (r"\vec{u} \times \vec{v}", r"\vec{u}\times\vec{v}", [r"\vec{v} \times \vec{u}"]),
        ("7^+", "7^{+}", ["7", "7^-"]),
    ],
)
def test_what_algebra_takes_for_factors_is_compared(
    reference_answer: str, equal: str, others: list[str]
) -> None:
    assert verify_answer(reference_answer, rf"\boxed{{{equal}}}").verdict == "correct"
    for other in others:
        for reference, answer in ((reference_answer, other), (other, reference_answer)):
            assert verify_answer(reference, rf"\boxed{{{answer}}}").verdict != "correct"


@pytest.mark.parametrize("name", [r"\frac{d^2y}{dx^2}", r"\frac{dy}{dx}", "dy/dx", "E[X]"])
@pytest.mark.parametrize("value", ["0", "x+1"])
def test_a_derivative_against_a_value_is_an_abstention(name: str, value: str) -> None:
    for reference, answer in ((name, value), (value, name)):
        assert verify_answer(reference, rf"\boxed{{{answer}}}").verdict == "unparsable"


@pytest.mark.parametrize(
    ("reference_answer", "answer"),
    [
        ("6x", r"\frac{dy}{dx} = 6x"),
        ("4", "E[X] = 4"),
        (r"\frac{AB}{2}", "AB/2"),
    ],
)
def test_the_value_of_a_derivative_or_an_expectation_may_be_named(reference_answer: str, answer: str) -> None:
    assert verify_answer(reference_answer, rf"\boxed{{{answer}}}").verdict == "correct"
