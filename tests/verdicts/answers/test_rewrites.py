"""Rewrites that keep an answer's meaning are never incorrect; another digit or sign is never correct."""

import json
import random
import re
from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks._labelled import find_data
from cooper_rl.config.data import RuleConfig
from cooper_rl.domains.mathematics import MATHEMATICS
from cooper_rl.verdicts.rule import RuleVerifier

DATA = find_data()
NUM_REFERENCES = 100
FILES = ("math500", "math_train", "olympiadbench", "bigmath_rule_fails", "svamp", "gsm8k_test", "gsm8k_train")
REWRITES: tuple[Callable[[str], str], ...] = (
    lambda text: text.replace(r"\frac", r"\dfrac"),
    lambda text: text.replace(",", ", ").replace("+", " + "),
    lambda text: f"${text.strip('$')}$",
    lambda text: text.replace("(", r"\left(").replace(")", r"\right)") if r"\left" not in text else text,
    lambda text: text.replace(r"\pi", "π").replace("-", "−").replace(r"\infty", "∞"),
    lambda text: text.replace(r"\text{", r"\mathrm{"),
    lambda text: f"{text}.",
    lambda text: re.sub(r"\\sqrt\{(\w+)\}", r" sqrt(\1)", text).replace(r"\pi", " pi"),
)
_FRACTION = re.compile(r"(?<![\d}])\\[dt]?frac\s?\{([^{}]*)\}\s?\{([^{}]*)\}")
_FUNCTION = re.compile(r"\\(pi|sin|cos|tan|ln|log|theta|alpha)(?![A-Za-z])")
_RELATION = re.compile(r"[=<>:]|\\(?:le|ge|ne|text|in|equiv)|[A-Za-z]{3}|±|\\pm")


def as_plain_text(text: str) -> str:
    """Roots, fractions and functions as typed on a keyboard; a mixed number keeps its fraction."""
    for _ in range(4):
        text = _FRACTION.sub(r"((\1)/(\2))", re.sub(r"\\sqrt\s?\{([^{}]*)\}", r" sqrt(\1)", text))
    text = re.sub(r"\\(?:left|right)(?![a-z])\s?", "", text.strip("$"))
    return _FUNCTION.sub(r" \1", text).replace(r"\cdot", "*")


def in_reverse(text: str) -> str:
    """A bare list of numbers from its end; anything else as it is."""
    parts = text.split(", ")
    is_list = len(parts) > 1 and all(
        re.fullmatch(r"-?\d{1,3}(?:/\d+)?|\\frac\{\d+\}\{\d+\}", part) for part in parts
    )
    return ", ".join(reversed(parts)) if is_list else text


STATEMENTS: tuple[Callable[[str], str], ...] = (
    lambda text: rf"\boxed{{{as_plain_text(text)}}}",
    lambda text: f"The answer is {text}.",
    lambda text: f"The answer is: {as_plain_text(text)}",
    lambda text: f"#### {text}",
    lambda text: json.dumps({"answer": text}),
    lambda text: rf"\boxed{{{text}}}" if _RELATION.search(text) else rf"\boxed{{x = {text}}}",
    lambda text: rf"Therefore we get \({text.strip('$')}\)." if text.count("$") <= 2 else text,
    lambda text: f"Therefore the value is {as_plain_text(text)}",
    lambda text: f"So the final result is {text}.",
    lambda text: f"**Final Answer:** **{text}**",
    lambda text: f"The final answer is **{as_plain_text(text)}**.",
    lambda text: rf"\[ \boxed{{\displaystyle {text}}} \]",
    lambda text: rf"\boxed{{{in_reverse(text)}}}",
    lambda text: rf"\boxed{{{text} \text{{ units}}}}" if re.fullmatch(r"-?[\d.]+", text) else f"A: {text}",
)
_SIGN = re.compile(r"(?<=[\w}) ])[+-](?=[\s\w\\])")


MEANT = (
    # Typed on a keyboard it is another product: sec(1/2) times theta.
    r"3 \sec \frac{1}{2} \theta",
    # The changed digit stands in the integrand; the value after `=` is right.
    r"\int \frac{x+2}{x^2 + 2x + 5} \, dx = \frac{1}{2} \ln(x^2 + 2x + 5)",
    # 8 is 2 modulo 3.
    r"n \text{ such that } n \equiv 0 \text{ or } 2 \pmod{3}",
)
"""Beginnings of references whose rewrite changes the meaning, or whose change keeps it."""


@pytest.fixture(scope="module")
def verifier() -> Iterator[RuleVerifier]:
    with RuleVerifier(RuleConfig(num_workers=2)) as verifier:
        yield verifier


def as_text(answer: str | float | list[str] | None) -> str:
    """OlympiadBench holds a list of answers, SVAMP numbers; a few problems of MATH hold none."""
    return ", ".join(answer) if isinstance(answer, list) else str(answer or "")


def other_digit(text: str, rng: random.Random) -> str | None:
    places = [place for place, letter in enumerate(text) if letter in "0123456789"]
    if not places or "_" in text:
        return None
    place = rng.choice(places)
    digit = (int(text[place]) + rng.randint(1, 9)) % 10
    return f"{text[:place]}{digit}{text[place + 1 :]}"


def other_sign(text: str, rng: random.Random) -> str | None:
    places = [match.start() for match in _SIGN.finditer(text)]
    if not places:
        return None
    place = rng.choice(places)
    return text[:place] + ("-" if text[place] == "+" else "+") + text[place + 1 :]


def find_faults(references: list[str], rng: random.Random, verifier: RuleVerifier) -> list[tuple[str, ...]]:
    same = [(text, rf"\boxed{{{rewrite(text)}}}") for text in references for rewrite in REWRITES]
    same += [(text, state(text)) for text in references for state in STATEMENTS]
    changed = [(text, change(text, rng)) for text in references for change in (other_digit, other_sign)]
    other = [
        (text, statement)
        for text, answer in changed
        if answer is not None
        for statement in (rf"\boxed{{{answer}}}", f"Therefore the value is {as_plain_text(answer)}")
    ]
    checks = verifier.verify([*same, *other])
    verdicts = [check.verdict for check in checks]
    wrongly_rejected = [p for p, v in zip(same, verdicts, strict=False) if v == "incorrect"]
    wrongly_accepted = [p for p, v in zip(other, verdicts[len(same) :], strict=True) if v == "correct"]
    return [("rejected", *pair) for pair in wrongly_rejected] + [
        ("accepted", *pair) for pair in wrongly_accepted
    ]


numbers = st.integers(min_value=2, max_value=99)
names = st.sampled_from("xytnks")
forms = st.one_of(
    st.builds("{}".format, numbers),
    st.builds(r"\frac{{{}}}{{97}}".format, numbers),
    st.builds("{}{}+{}".format, numbers, names, numbers),
    st.builds(r"{}\pi".format, numbers),
    st.builds("({},{})".format, numbers, st.integers(min_value=100, max_value=999)),
    st.builds(r"\frac{{{}\pi}}{{7}}".format, numbers),
    st.builds("{}^2-{}{}".format, names, numbers, names),
    st.builds(r"(-\infty,{})".format, numbers),
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(reference=forms, seed=st.integers(min_value=0, max_value=2**16))
def test_rewrites_of_generated_answers_keep_their_verdict(
    reference: str, seed: int, verifier: RuleVerifier
) -> None:
    assert find_faults([reference], random.Random(seed), verifier) == []


def read_references(name: str) -> list[str]:
    """The different reference answers of a file that can be compared with at all."""
    assert DATA is not None
    with (DATA / "problems" / f"{name}.jsonl").open(encoding="utf-8") as lines:
        found = {as_text(json.loads(line)["answer"]) for line in lines}
    return sorted(text for text in found if MATHEMATICS.find_reference_fault(text) is None)


@pytest.mark.real_data
@pytest.mark.skipif(DATA is None, reason="no ../shared/data and no COOPER_REAL_DATA on this machine")
def test_rewrites_of_a_hundred_real_references_keep_their_verdict(verifier: RuleVerifier) -> None:
    references = [text for name in FILES for text in read_references(name)]
    chosen = random.Random(0).sample(references, NUM_REFERENCES)
    assert find_faults(chosen, random.Random(1), verifier) == []


@pytest.mark.slow
@pytest.mark.real_data
@pytest.mark.skipif(DATA is None, reason="no ../shared/data and no COOPER_REAL_DATA on this machine")
@pytest.mark.parametrize("name", FILES)
def test_rewrites_of_all_real_references_keep_their_verdict(name: str, verifier: RuleVerifier) -> None:
    """Minutes: every reference answer in twenty spellings and four changed ones."""
    faults = find_faults(read_references(name), random.Random(1), verifier)
    assert [fault for fault in faults if not fault[1].startswith(MEANT)] == []
