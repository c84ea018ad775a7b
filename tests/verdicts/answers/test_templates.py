"""Pairs made from templates for each family of notation (`benchmarks/families`), frozen before mending."""

from collections import Counter
from collections.abc import Iterator

import pytest

from benchmarks.family_pairs import family_names, read_family
from cooper_rl.config.data import RuleConfig
from cooper_rl.verdicts.rule import RuleVerifier

KNOWN_WRONG = {"A3": 2}
"""One template of the half that was not looked at while mending."""
FEWEST_RIGHT = {"BM": 0.75}
"""Sentences for answers, where the rule abstains without the question."""
EVERY = 5
"""The benchmark asks for all of them."""


@pytest.fixture(scope="module")
def verifier() -> Iterator[RuleVerifier]:
    with RuleVerifier(RuleConfig(num_workers=2)) as verifier:
        yield verifier


@pytest.mark.parametrize("family", family_names())
def test_no_pair_has_a_wrong_verdict_and_few_abstain(family: str, verifier: RuleVerifier) -> None:
    pairs = read_family(family)[::EVERY]
    checks = verifier.verify([pair.item for pair in pairs])
    rates = Counter(pair.rate(check.verdict) for pair, check in zip(pairs, checks, strict=True))
    assert len(pairs) >= 60
    assert rates["wrong"] <= KNOWN_WRONG.get(family, 0)
    assert rates["right"] >= FEWEST_RIGHT.get(family, 0.85) * len(pairs)
