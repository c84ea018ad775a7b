"""The rule verifier as the laptop has it, which reads no number words."""

from collections.abc import Iterator

import pytest

from cooper_rl.config.data import AnswerPolicy, RuleConfig
from cooper_rl.verdicts.rule import RuleVerifier


@pytest.fixture(scope="module")
def rule() -> Iterator[RuleVerifier]:
    with RuleVerifier(RuleConfig(num_workers=1, policy=AnswerPolicy(number_words=False))) as verifier:
        yield verifier
