r"""Answers of which algebra would read a part only: `12 \lg 5` and `12 \times` are not 12."""

import time

import pytest

from cooper_rl.verdicts.answers.verify import verify_answer

UNKNOWN = [
    *("lg", "phantom", "cancel", "underline", "circ", "star", "aleph", "partial", "oplus", "approx"),
    *("simeq", "nless", "notin", "Rightarrow", "iff", "because", "vdots", "arg", "det", "unknown", "ref"),
]
KNOWN = [
    *("times", "cdot", "div", "sqrt", "frac", "binom", "sin", "log", "sum", "lim", "max", "lfloor"),
    *("hat", "cup"),
]
FORMS = [
    *("CMD 12", "12 CMD", "12 CMD 13", "13 CMD 12", "12 CMD x", "12CMD{13}", "CMD{13}12"),
    "12_{CMD}",
]


@pytest.mark.parametrize("command", UNKNOWN + KNOWN)
def test_a_command_that_is_read_in_part_makes_no_answer_correct(command: str) -> None:
    for form in FORMS:
        answer = form.replace("CMD", rf"\{command}")
        assert verify_answer("12", rf"\boxed{{{answer}}}").verdict != "correct", answer


@pytest.mark.parametrize(
    ("reference_answer", "answer"),
    [
        ("12", "13 = 12"),
        ("12", "13 != 12"),
        ("12", "4! = 12"),
        ("12", "13* = 12"),
        ("12", r"\not= 12"),
        ("12", "12 # x"),
        ("12", "12 @ x"),
        ("12", "12 ? x"),
        ("12", "12() x"),
        ("12", "12*"),
        ("12", "12^_x"),
        ("12", r"\| 12"),
        ("12", r"\phantom{12}"),
        ("12", r"\{ 12"),
        ("12", r"x \cap 12"),
        (r"\sqrt{2}", r"3 = \sqrt{2}"),
        (r"\sqrt{2}", r"\sqrt{3} = \sqrt{2}"),
        ("x+1", r"x+1 \lg y"),
        ("x+1", "x+1^"),
        ("x+1", "x+1 <"),
        ("x+1", ")x+1("),
        ("(1,2)", "(1/, 2)"),
        ("x=3", r"x+\le 3"),
        ("3", "2+(1"),
    ],
)
def test_an_answer_that_is_not_read_whole_is_an_abstention(reference_answer: str, answer: str) -> None:
    assert verify_answer(reference_answer, rf"\boxed{{{answer}}}").verdict == "unparsable"


@pytest.mark.parametrize(
    ("reference_answer", "answer"),
    [
        (r"\frac{d!}{2k(d-k)!}", r"\frac{\dbinom{d}{k}(k-1)!}{2}"),
        (r"\frac{\sqrt{3}}{3} \approx 0.577", r"\frac{1}{\sqrt{3}}"),
        (r"\frac{1}{\sqrt{3}}", r"\frac{\sqrt{3}}{3} \approx 0.577"),
        ("12", "3*4 = 12"),
        ("33.33", "100/3 = 33.33"),
        ("12", "7 apples + 5 apples = 12 apples"),
        (r"\sqrt{2}", r"\frac{2}{\sqrt{2}} = \sqrt{2}"),
        (r"\lfloor x/2 \rfloor + 1", r"1 + \lfloor \frac{x}{2} \rfloor"),
        (r"\max(a, b) + 1", r"1 + \max(a,b)"),
        (r"\sum_{k=1}^{3} k x", "6x"),
        (r"(-\infty, 1) \cup (2, \infty)", r"(2,\infty)\cup(-\infty,1)"),
    ],
)
def test_what_is_read_whole_is_compared(reference_answer: str, answer: str) -> None:
    assert verify_answer(reference_answer, rf"\boxed{{{answer}}}").verdict == "correct"


def test_a_rounding_that_is_none_is_not_left_out() -> None:
    assert verify_answer(r"\sqrt{2}", r"\boxed{\sqrt{2} \approx 5}").verdict == "unparsable"


@pytest.mark.parametrize(
    ("opening", "closing"),
    [
        (r"\frac{1}{1+", "}"),
        (r"\sqrt{1+", "}"),
        (r"\sin(", ")"),
        (r"\{", r"\}"),
        ("(1,", ")"),
        (r"\{1,", r"\}"),
    ],
)
def test_deep_brackets_take_no_time(opening: str, closing: str) -> None:
    answer = opening * 200 + "x" + closing * 200
    for reference in ("12", "x+1", "(1,x)"):
        started = time.process_time()
        assert verify_answer(reference, rf"\boxed{{{answer}}}").verdict == "unparsable"
        assert time.process_time() - started < 1
