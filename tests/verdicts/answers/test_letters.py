"""Letters that algebra misreads: capital and small ones, and T as an exponent."""

import pytest

from cooper_rl.verdicts.answers.algebra.letters import tell_cases_apart
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
    "form", ["4NAME", r"\pi NAME^2", "2^{NAME}", r"x=3NAME", "(0, NAME)", "0 < x < NAME", "NAMENAME"]
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
        ("Monday", "MONDAY"),
    ],
)
def test_what_is_no_variable_has_any_case(reference_answer: str, answer: str) -> None:
    assert verify_answer(reference_answer, rf"\boxed{{{answer}}}").verdict == "correct"


def test_letters_change_only_where_both_cases_occur() -> None:
    assert tell_cases_apart(r"\frac{R}{2}", "0.5R + r") is not None
    for texts in ((r"\frac{R}{2}", "0.5R"), ("E", "e"), (r"\mathbb{R}", "r"), (r"R \text{ or } 2R", "R")):
        assert tell_cases_apart(*texts) is None


@pytest.mark.parametrize(
    "base", ["2", "1.05", "(1+r)", r"\left(1+\frac{r}{12}\right)", r"\frac{x}{2}\cdot 3", "e"]
)
@pytest.mark.parametrize("exponent", ["^T", "^{T}", "^{ T }"])
def test_a_power_of_a_number_is_not_that_number(base: str, exponent: str) -> None:
    reference = rf"100 \cdot {base}{exponent}"
    for answer, verdict in (
        (rf"{base}^T \cdot 100", "correct"),
        (rf"100 \cdot {base}", "incorrect"),
        ("100", "incorrect"),
    ):
        assert verify_answer(reference, rf"\boxed{{{answer}}}").verdict == verdict
        assert verify_answer(answer, rf"\boxed{{{reference}}}").verdict == verdict
    assert verify_answer(reference, rf"\boxed{{{reference.replace('T', 't')}}}").verdict == "unparsable"


@pytest.mark.parametrize(
    ("reference_answer", "answer", "verdict"),
    [
        ("A^T B", "A^{T}B", "correct"),
        ("A^T B", "B A^T", "unparsable"),
        ("(AB)^T", "A^T B^T", "unparsable"),
        ("A^T A", "A A^T", "unparsable"),
        ("(2AB)^T", "2B^T A^T", "unparsable"),
        ("(2AB)^T", "2AB", "unparsable"),
        ("u^T v", "u v", "unparsable"),
        ("u^Tv", "v^Tu", "unparsable"),
        (r"A^{\mathrm{T}}", "A^T", "unparsable"),
        (r"A^{\mathrm{T}}", "A", "unparsable"),
        (r"\begin{pmatrix} 3 \\ 8 \end{pmatrix}", r"\begin{pmatrix} 3 & 8 \end{pmatrix}^T", "correct"),
        (r"\begin{pmatrix} 3 \\ 8 \end{pmatrix}", r"\begin{pmatrix} 8 & 3 \end{pmatrix}^T", "unparsable"),
        ("(x+x^2)'", "x+x^2", "unparsable"),
    ],
)
def test_transposes_and_derivatives_are_not_skipped(reference_answer: str, answer: str, verdict: str) -> None:
    assert verify_answer(reference_answer, rf"\boxed{{{answer}}}").verdict == verdict


@pytest.mark.parametrize(
    ("reference_answer", "answer", "verdict"),
    [
        ("A^{-1}B", "BA^{-1}", "unparsable"),
        ("A^{-1} B", "A^{-1}B", "correct"),
        ("2A^{-1}B", r"A^{-1} \cdot B \cdot 2", "correct"),
        ("A^{-1}+B", "B + A^{-1}", "correct"),
        ("(AB)^{-1}", "A^{-1}B^{-1}", "unparsable"),
        ("AB-BA", "0", "unparsable"),
        ("0", "XY-YX", "unparsable"),
        (r"\frac{PV}{2}", "0.5VP", "correct"),
    ],
)
def test_matrices_have_an_order(reference_answer: str, answer: str, verdict: str) -> None:
    assert verify_answer(reference_answer, rf"\boxed{{{answer}}}").verdict == verdict
