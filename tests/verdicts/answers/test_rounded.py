"""Exact answers to rounded reference answers, and the reverse: only the question tells whether they do."""

import pytest

from cooper_rl.verdicts.answers.verify import verify_answer

ROUNDED = [
    # rounded, exact, near it but no rounding
    ("14.3", r"\frac{100}{7}", r"\frac{101}{7}"),
    ("-14.3", r"-\frac{100}{7}", r"-\frac{99}{7}"),
    (r"16.7\%", r"\frac{50}{3}\%", r"\frac{51}{3}\%"),
    (r"0.571x", r"\frac{4}{7}x", r"\frac{5}{7}x"),
    (r"0.571x^2 - 3", r"\frac{4x^2}{7} - 3", r"\frac{4x^2}{7} - 4"),
    ("y = 0.571x + 2.5", r"y = \frac{4}{7}x + \frac{5}{2}", r"y = \frac{4}{7}x + \frac{7}{2}"),
    (r"1.414e^{t}", r"\sqrt{2}e^{t}", r"\sqrt{3}e^{t}"),
    ("2.667x + 1", "2.66667x + 1", "2.68667x + 1"),
]


@pytest.mark.parametrize(("rounded", "exact", "other"), ROUNDED)
def test_a_rounding_is_no_other_value(rounded: str, exact: str, other: str) -> None:
    for reference, answer in ((rounded, exact), (exact, rounded)):
        assert verify_answer(reference, rf"\boxed{{{answer}}}").verdict == "unparsable"
    assert verify_answer(rounded, rf"\boxed{{{other}}}").verdict == "incorrect"
    assert verify_answer(other, rf"\boxed{{{rounded}}}").verdict == "incorrect"


@pytest.mark.parametrize(
    ("reference_answer", "answer"),
    [("3.3", r"\frac{10}{3}"), ("0.57x", r"\frac{4}{7}x"), ("2.45x + 1", "2.46x + 1"), ("0.572x", "0.571x")],
)
def test_two_digits_or_as_many_on_both_sides_are_no_rounding(reference_answer: str, answer: str) -> None:
    assert verify_answer(reference_answer, rf"\boxed{{{answer}}}").verdict == "incorrect"
