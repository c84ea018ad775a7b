"""The domain of mathematics, and that nothing of a subject's own is left where all subjects pass."""

import ast
from pathlib import Path

import pytest

from cooper_rl.config.cooper import NegativesConfig
from cooper_rl.config.data import RuleConfig
from cooper_rl.config.load import load
from cooper_rl.config.names import DOMAINS, NEGATIVE_SOURCES
from cooper_rl.domains.open import default_domain, find_domain
from cooper_rl.errors import ConfigError

SOURCE = Path(__file__).parents[2] / "src" / "cooper_rl"
NEUTRAL = [
    *(f"training/{name}.py" for name in ("step", "rollout", "pairing", "negative_sources", "pair_queue")),
    *(f"training/{name}.py" for name in ("gate", "refill", "policy_update", "reward_update")),
    *(f"run/{name}.py" for name in ("build", "evaluator", "loop", "promotion")),
    *(f"stages/{name}.py" for name in ("evaluate_policy", "label_completions", "promote", "train_cooper")),
    *(f"stages/{name}.py" for name in ("collect_problems", "evaluate_verify_rm", "train_verify_rm")),
    *("training/curriculum.py", "training/fit_verify_rm.py", "records/layouts.py"),
    *("servers/chat.py", "servers/open.py", "verdicts/votes.py", "verdicts/journal.py"),
]
SUBJECTS_OWN = (
    "cooper_rl.domains.mathematics",
    "cooper_rl.negatives.mention",
    "cooper_rl.negatives.perturb",
    "cooper_rl.verdicts.answers",
    "cooper_rl.verdicts.rule",
)
SUBJECTS_NAMES = {"judge_prompt", "assistant_prompt", "make_canaries", "CanaryWriter", "ATTACKS"}


@pytest.mark.parametrize("path", NEUTRAL)
def test_no_module_that_all_subjects_pass_imports_one_subjects_own(path: str) -> None:
    for node in ast.walk(ast.parse((SOURCE / path).read_text())):
        if isinstance(node, ast.ImportFrom):
            assert not (node.module or "").startswith(SUBJECTS_OWN), node.module
            assert not SUBJECTS_NAMES & {alias.name for alias in node.names}, node.module


def test_mathematics_is_the_default_and_checks_answers_by_value() -> None:
    domain = default_domain()
    assert find_domain(load("laptop").problems.domain) is domain
    verifier = domain.open_verifier(RuleConfig(num_workers=1))
    try:
        found = [
            check.verdict for check in verifier.verify([("0.5", "#### 1/2"), ("3", "#### 4"), ("3", "")])
        ]
        assert found == ["correct", "incorrect", "unparsable"]
    finally:
        verifier.close()
    assert domain.check_mention("16", "It is 17.") == "incorrect"
    assert domain.find_reference_fault("16") is None
    assert "holds no number" in (domain.find_reference_fault("!") or "")


def test_an_unknown_domain_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"domain=law: use one of mathematics.*, or register a part"):
        load("laptop", ["problems.domain=law"])
    with pytest.raises(ConfigError, match=r"problems\.domain=law: nothing is registered under this name"):
        find_domain("law")
    assert DOMAINS.names[0] == "mathematics"


def test_every_shipped_source_has_a_weight_and_every_weight_a_source() -> None:
    """Names stand once more, as fields, for their docstrings."""
    fields = [name for name in NegativesConfig.model_fields if name not in ("max_candidates", "others")]
    assert tuple(fields) == NEGATIVE_SOURCES.names[: len(fields)]
    assert list(NegativesConfig().weights())[: len(fields)] == fields


def test_an_unknown_source_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"negatives=mine: use one of assistant, rollout, perturb, canary"):
        load("laptop", ["cooper.pairs.negatives.others.mine=1"])
