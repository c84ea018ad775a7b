"""Each architecture of docs/how-to/model.md: log-probabilities, one training step, VerifyRM's backbone."""

import re
from pathlib import Path

import pytest

from benchmarks.model_support import KINDS, measure_support

PAGE = Path(__file__).parent.parent.parent / "docs" / "how-to" / "model.md"


@pytest.mark.parametrize("kind", KINDS)
def test_an_architecture_is_trained_and_scored(kind: str, tmp_path: Path) -> None:
    """Log-probabilities are held to transformers' own, and an update makes what was rewarded more likely."""
    found = measure_support(kind, tmp_path)
    assert found.max_difference < 1e-4
    assert found.gain > 0
    assert 0 < found.score < 1
    row = f"| {KINDS[kind]} | {'packed' if found.is_packed else 'padded'} |"
    assert row in PAGE.read_text(encoding="utf-8")


def test_the_page_names_every_architecture_that_is_measured() -> None:
    named = re.findall(
        r"^\| ([\w .-]+) \| (?:packed|padded) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE
    )
    assert sorted(named) == sorted(KINDS.values())
