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
from cooper_rl.verdicts.rule import RuleVerifier

DATA = find_data()
NUM_REFERENCES = 100
REWRITES: tuple[Callable[[str], str], ...] = (
    lambda text: text.replace(r"\frac", r"\dfrac"),
    lambda text: text.replace(",", ", ").replace("+", " + "),
    lambda text: f"${text.strip('$')}$",
    lambda text: text.replace("(", r"\left(").replace(")", r"\right)") if r"\left" not in text else text,
    lambda text: text.replace(r"\pi", "π").replace("-", "−").replace(r"\infty", "∞"),
    lambda text: text.replace(r"\text{", r"\mathrm{"),
    lambda text: f"{text}.",
    lambda text: re.sub(r"\\sqrt\{(\w+)\}", r"sqrt(\1)", text).replace(r"\pi", "pi"),
)
_SIGN = re.compile(r"(?<=[\w}) ])[+-](?=[\s\w\\])")


@pytest.fixture(scope="module")
def verifier() -> Iterator[RuleVerifier]:
    with RuleVerifier(RuleConfig(num_workers=2)) as verifier:
        yield verifier


def as_text(answer: str | list[str] | None) -> str:
    """OlympiadBench holds a list of answers; a few problems of MATH hold none."""
    return answer if isinstance(answer, str) else ", ".join(answer or [])


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
    same = [(text, rewrite(text)) for text in references for rewrite in REWRITES]
    changed = [(text, change(text, rng)) for text in references for change in (other_digit, other_sign)]
    other = [(text, answer) for text, answer in changed if answer is not None]
    checks = verifier.verify([(text, rf"\boxed{{{answer}}}") for text, answer in (*same, *other)])
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


@pytest.mark.real_data
@pytest.mark.skipif(DATA is None, reason="no ../shared/data and no COOPER_REAL_DATA on this machine")
@pytest.mark.parametrize("name", ["math500", "math_train", "olympiadbench"])
def test_rewrites_of_real_references_keep_their_verdict(name: str, verifier: RuleVerifier) -> None:
    assert DATA is not None
    lines = (DATA / "problems" / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    references = sorted({as_text(json.loads(line)["answer"]) for line in lines} - {""})
    chosen = random.Random(0).sample(references, min(NUM_REFERENCES, len(references)))
    assert find_faults(chosen, random.Random(1), verifier) == []
