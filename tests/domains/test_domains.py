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
ROOMS = (
    *("method", "training", "run", "models", "engines", "distributed", "checkpoints", "records", "storage"),
    *("stages", "experiment", "redteam", "report", "servers", "cluster", "config", "schema", "machine"),
)
"""Every room that problems of all subjects pass."""
CHOSEN_HERE = {"domains/open.py"}
"""Where a name becomes a domain: what is imported from there is the subject's own by right."""
SUBJECTS_OWN = {
    "domains/mathematics.py",
    "domains/programs.py",
    *(
        f"negatives/{name}.py"
        for name in ("answer_attacks", "choices", "holding", "mention", "near_answers", "perturb")
    ),
    *("verdicts/rule.py", "verdicts/worker.py", "verdicts/programs.py", "verdicts/program_worker.py"),
    *(str(path.relative_to(SOURCE)) for path in SOURCE.glob("verdicts/answers/*.py")),
}


def test_no_module_that_all_subjects_pass_reaches_one_subjects_own() -> None:
    """Directly or through what it imports; the path of imports is what the message shows."""
    start = {str(path.relative_to(SOURCE)) for room in ROOMS for path in (SOURCE / room).glob("**/*.py")}
    assert {"training/step.py", "models/packed/forward.py", "method/losses.py"} <= start
    ways: dict[str, list[str]] = {path: [path] for path in sorted(start)}
    waiting = list(ways)
    while waiting:
        path = waiting.pop()
        assert path not in SUBJECTS_OWN, " -> ".join(ways[path])
        for found in () if path in CHOSEN_HERE else imported(path):
            if found not in ways:
                ways[found] = [*ways[path], found]
                waiting.append(found)


def imported(path: str) -> list[str]:
    """Our modules that a module imports, anywhere in it."""
    names: list[str] = []
    for node in ast.walk(ast.parse((SOURCE / path).read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("cooper_rl."):
            names += [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
    places = [f"{name.removeprefix('cooper_rl.').replace('.', '/')}.py" for name in names]
    return [place for place in places if (SOURCE / place).is_file()]


@pytest.mark.parametrize("room", [room for room in ROOMS if room != "config"])
def test_no_line_that_all_subjects_pass_compares_the_name_of_a_subject(room: str) -> None:
    for path in (SOURCE / room).glob("**/*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            named = isinstance(node, ast.Constant) and node.value in DOMAINS.names
            assert not named, f"{path}:{getattr(node, 'lineno', 0)}"


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
    assert domain.check_mention("q", "16", "It is 17.") == "incorrect"
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
