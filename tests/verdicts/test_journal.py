"""The journal of verdicts: damage costs the verdicts of the damaged lines, and never the run."""

import json
import os
from pathlib import Path

import pytest

from cooper_rl.errors import DataError
from cooper_rl.verdicts import journal as module
from cooper_rl.verdicts.journal import Journal, KeptVerdict
from tests.waiting import within

KEPT = b'["a", "correct", "as it was"]\n'


@pytest.mark.parametrize(
    "line",
    [
        b"[" * 100_000,
        b'["a", "incorrect", ' + b"[" * 5000 + b"]" * 5000 + b"]",
        b'["b", "correct", "\\ud800"]',
        b'["\\ud800", "correct", ""]',
        b'["b", "correct"]',
        b'["b", "perhaps", "another version"]',
        b'["b", "correct", "more", 4]',
        b'{"key": "b", "verdict": "correct", "reason": ""}',
        b'["b", ["correct"], "x"]',
        b'[1, "correct", "x"]',
        b'["b", "correct", "\xff"]',
        b"\0" * 600,
        b"",
    ],
)
def test_a_line_that_is_no_verdict_costs_no_other_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: bytes
) -> None:
    """Nesting beyond Python's limits ended the run, and so did half a surrogate pair in a long journal."""
    monkeypatch.setattr(module, "MAX_RECENT", 2)  # every second verdict goes to the index on disk
    path = tmp_path / "journal"
    path.write_bytes(line + b"\n" + KEPT + line + b"\n")
    with Journal(path) as journal:
        assert journal.recall("a") == KeptVerdict("correct", "as it was")
        assert journal.recall("b") is None
        journal.keep("b", "incorrect", "anew")
    assert path.read_bytes() == line + b"\n" + KEPT + line + b'\n["b", "incorrect", "anew"]\n'


def test_half_a_surrogate_pair_in_a_reason_is_replaced(tmp_path: Path) -> None:
    """Of a judge of somebody else: ours replaces it before."""
    with Journal(tmp_path / "journal") as journal:
        journal.keep("a", "correct", "\ud83d yes")
    assert json.loads((tmp_path / "journal").read_text()) == ["a", "correct", "\N{REPLACEMENT CHARACTER} yes"]


def test_a_pipe_in_the_place_of_a_journal_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "journal")
    with (
        within(20),
        pytest.raises(DataError, match=r"journal: the journal of verdicts cannot be opened .*no"),
    ):
        Journal(tmp_path / "journal").__enter__()
    assert (tmp_path / "journal").is_fifo()
