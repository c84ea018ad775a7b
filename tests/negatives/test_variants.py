"""Other answers in the form of a given one: certainly others, and of many kinds."""

import random
import time

import pytest

from cooper_rl.config.data import RuleConfig
from cooper_rl.negatives.matching import matching_examples
from cooper_rl.negatives.variants import vary_answer
from cooper_rl.verdicts.answers.verify import is_another_answer
from cooper_rl.verdicts.rule import RuleVerifier

ANSWERS = [
    "12", "-3", "3.14", "1,234", "1" * 40, r"\frac{1}{4}", "3/8", r"12\sqrt{3}", r"\pi", "2x + 5",
    "x^2 - 4x + 7", "7 - 9i", "(2, 3)", r"\left( 2, \frac{5 \pi}{3} \right)", r"(-\infty, 3]",
    r"(-\infty, 1) \cup (2, \infty)", r"\begin{pmatrix} 4 \\ 0 \end{pmatrix}", r"-\sqrt{3},-1,1,\sqrt{3}",
    r"6, 8\text{, and }10", "y = -1", r"x \le 5", r"18\%", r"27^\circ", r"\$23.40", r"20\text{ days}",
    "8:34", r"\text{(C)}", "B", r"\text{CBAD}", r"\text{even}", "Tuesday", "Evelyn", "xy", "1010_2", "Yes",
]  # fmt: skip


@pytest.mark.parametrize("answer", ANSWERS)
def test_a_variant_is_another_answer_and_several_are_found(answer: str) -> None:
    rng = random.Random(0)
    found = {vary_answer(answer, rng) for _ in range(40)} - {None}
    assert len(found) >= (1 if answer in ("Yes", r"\pi") else 3)
    assert all(is_another_answer("", answer, variant) for variant in found if variant is not None)
    assert found == {vary_answer(answer, again) for again in [random.Random(0)] for _ in range(40)} - {None}


def test_no_variant_is_right_by_algebra() -> None:
    rng = random.Random(1)
    generated = {example.reference_answer for example in matching_examples(300, rng)}
    drawn = [(answer, vary_answer(answer, rng)) for answer in [*ANSWERS * 6, *sorted(generated)]]
    pairs = [(answer, rf"\boxed{{{variant}}}") for answer, variant in drawn if variant is not None]
    with RuleVerifier(RuleConfig(num_workers=1)) as verifier:
        checks = verifier.verify(pairs)
    assert len(pairs) >= 400
    assert [pair for pair, check in zip(pairs, checks, strict=True) if check.verdict == "correct"] == []


@pytest.mark.parametrize("answer", ["", "?", "   ", r"\text{}", "“”", "½"])
def test_there_is_none_where_nothing_can_be_exchanged(answer: str) -> None:
    assert vary_answer(answer, random.Random(0)) is None


@pytest.mark.parametrize(
    ("answer", "bare"),
    [("x = 5", "5"), ("f(x) = 3x + 1", "3x + 1"), ("5 m", "5"), ("n \\le 4", "(-\\infty, 4]")],
)
def test_no_variant_is_answered_by_the_bare_answer(answer: str, bare: str) -> None:
    rng = random.Random(4)
    found = {variant for _ in range(60) if (variant := vary_answer(answer, rng)) is not None}
    assert len(found) >= 10
    assert [variant for variant in found if not is_another_answer("", variant, bare)] == []


@pytest.mark.parametrize("answer", ["(1," + " " * 20_000, "1+" * 10_000 + "1", "(1,2)" * 5_000])
def test_a_long_answer_has_none_and_takes_no_time(answer: str) -> None:
    started = time.process_time()
    assert vary_answer(answer, random.Random(0)) is None
    assert time.process_time() - started < 1


def test_brackets_that_mean_the_same_stay() -> None:
    rng = random.Random(5)
    intervals = {vary_answer(r"(-\infty, 3]", rng) for _ in range(80)}
    assert any(variant is not None and variant.startswith("(") for variant in intervals)
    assert not any(variant is not None and variant.startswith(r"[-\infty") for variant in intervals)
    assert r"\gcd(600, 4)" not in {vary_answer(r"\gcd(4, 600)", rng) for _ in range(80)}


def test_an_answer_keeps_what_surrounds_the_change() -> None:
    rng = random.Random(3)
    units = {vary_answer(r"20\text{ days}", rng) for _ in range(30)}
    assert all(variant is not None and variant.endswith(r"\text{ days}") for variant in units)
    swapped = {vary_answer(r"\left(1, 2 \right)", rng) for _ in range(60)}
    assert r"\left(2, 1 \right)" in swapped
    assert all(variant is not None and variant.count(r"\right") == 1 for variant in swapped)
