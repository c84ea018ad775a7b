"""What is set in a font, or stands in braces, is what it is without them."""

import pytest

from cooper_rl.verdicts.answers.verify import verify_answer

FONTS = ["boldsymbol", "bm", "pmb", "mathbf", "mathit", "mathsf", "mathtt", "textbf", "textit", "emph"]
ANSWERS = [
    # reference answer, another value
    ("17", "18"),
    (r"\frac{3}{8}", r"\frac{3}{7}"),
    ("3x-5", "3x+5"),
    (r"6\pi", r"7\pi"),
    (r"2\sqrt{3}", r"2\sqrt{5}"),
    ("2^{7}", "2^{8}"),
    ("(4, -1)", "(-1, 4)"),
    ("[0, 3)", "[1, 3)"),
    (r"(1, \frac{1}{3})", r"(1, \frac{1}{4})"),
    ("8 cm^{2}", "9 cm^{2}"),
    ("C", "D"),
]


@pytest.mark.parametrize("font", [rf"\{font}" for font in FONTS] + [""])
@pytest.mark.parametrize(("reference_answer", "other"), ANSWERS)
def test_a_font_says_nothing(reference_answer: str, other: str, font: str) -> None:
    if not font and "," in reference_answer:
        return  # braces alone may be those of a set
    for answer, verdict in ((reference_answer, "correct"), (other, "incorrect")):
        set_in_font = f"{font}{{{answer}}}"
        assert verify_answer(reference_answer, rf"\boxed{{{set_in_font}}}").verdict == verdict
        assert verify_answer(set_in_font, rf"\boxed{{{reference_answer}}}").verdict == verdict


@pytest.mark.parametrize("font", FONTS)
def test_a_part_of_an_answer_may_be_set_in_a_font(font: str) -> None:
    for reference, answer in (
        ("x^2", rf"x^{{\{font}{{2}}}}"),
        (r"\frac34", rf"\frac{{\{font}{{3}}}}{{4}}"),
        (r"\mathbf{a}+2\mathbf{b}", rf"2\{font}{{b}}+\{font}{{a}}"),
        ("25", rf"\{font}{{\mathrm{{25}}}}"),
        (r"5\text{ m}", rf"\{font}{{5}} \text{{ m}}"),
    ):
        assert verify_answer(reference, rf"\boxed{{{answer}}}").verdict == "correct"
    for reference, answer in ((r"\frac34", rf"\frac{{\{font}{{4}}}}{{3}}"), ("x^2", rf"x^{{\{font}{{3}}}}")):
        assert verify_answer(reference, rf"\boxed{{{answer}}}").verdict == "incorrect"


@pytest.mark.parametrize("command", ["text", "mathrm", "textbf", "mathbf"])
def test_a_power_behind_a_number_with_its_unit_belongs_to_the_unit(command: str) -> None:
    for answer, verdict in (("7 cm", "correct"), ("7cm", "correct"), ("49 cm", "incorrect")):
        for power in ("^2", "^{2}"):
            text = rf"\{command}{{{answer}}}{power}"
            assert verify_answer(r"7 \text{ cm}^2", rf"\boxed{{{text}}}").verdict == verdict
            assert verify_answer("7", rf"\boxed{{{text}}}").verdict == verdict


@pytest.mark.parametrize(
    ("answer", "digits"), [("㉑", "21"), ("❼", "7"), ("⓪", "0"), ("㊿", "50"), ("1️⃣0️⃣", "10")]
)
def test_a_circle_or_a_box_round_a_number_says_nothing(answer: str, digits: str) -> None:
    assert verify_answer(digits, rf"\boxed{{{answer}}}").verdict == "correct"
    assert verify_answer("99", f"The answer is {answer}.").verdict == "incorrect"
