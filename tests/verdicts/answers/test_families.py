"""Pairs by family of notation, written before the verifier was mended for them.

Each row of `families/*.jsonl` has a reference answer, a completion, what a verifier should say, and where it
matters the question and how the completion ended. `abstain`: the two texts alone do not tell.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from cooper_rl.config.data import RuleConfig
from cooper_rl.verdicts.answers.verify import AnswerItem
from cooper_rl.verdicts.rule import RuleVerifier

FAMILIES = sorted((Path(__file__).parent / "families").glob("*.jsonl"))
KNOWN_WRONG = {
    # Cases are not told from corrections.
    ("2", r"If x = 1 then \boxed{1}; if x = 2 then \boxed{2}."),
}
MIN_RIGHT_SHARE = {"A1": 0.7, "R1": 0.8, "R4": 0.8, "R5": 0.8}
"""Where more abstain than a tenth: the wrong answers of these families often have a second reading."""


@pytest.fixture(scope="module")
def verifier() -> Iterator[RuleVerifier]:
    with RuleVerifier(RuleConfig(num_workers=2)) as verifier:
        yield verifier


@pytest.mark.parametrize("family", FAMILIES, ids=lambda path: path.stem)
def test_no_pair_of_a_family_has_a_wrong_verdict(family: Path, verifier: RuleVerifier) -> None:
    rows = [json.loads(line) for line in family.read_text(encoding="utf-8").splitlines()]
    items = [
        AnswerItem(row["reference"], row["completion"], row.get("question", ""), row.get("finish_reason"))
        for row in rows
    ]
    verdicts = [check.verdict.replace("unparsable", "abstain") for check in verifier.verify(items)]
    wrong = [
        (row, verdict)
        for row, verdict in zip(rows, verdicts, strict=True)
        if verdict not in ("abstain", row["expected"])
        and (row["reference"], row["completion"]) not in KNOWN_WRONG
    ]
    assert wrong == []
    num_right = sum(verdict == row["expected"] for row, verdict in zip(rows, verdicts, strict=True))
    assert num_right >= MIN_RIGHT_SHARE.get(family.stem, 0.9) * len(rows)
