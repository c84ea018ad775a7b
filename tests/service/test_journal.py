"""The journal of a run, asked while it is written again, and the folder of the runs."""

import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from cooper_rl.api.rows import Row
from cooper_rl.errors import DataError
from cooper_rl.service.journal import Entry, Journal
from cooper_rl.service.runs import take_state
from tests.waiting import within


def entry(number: int) -> Entry:
    return Entry(
        id=f"r{number}", digest="d", rewards=(0.5,), verify_rm_step=0, staleness=0, step=1, ends_step=True,
        rows=(Row("1+1?", "2", "2", None),),
    )  # fmt: skip


def test_every_answer_is_found_while_the_journal_drops_rows(tmp_path: Path) -> None:
    """A repeated request that misses its answer would be scored and learned a second time."""
    journal = Journal(tmp_path, kept_rewards=10**6)
    journal.append([entry(number) for number in range(500)])
    compacting = threading.Thread(target=journal.compact, args=(0,))
    compacting.start()
    lookups = missed = 0
    while compacting.is_alive() or not lookups:
        lookups += 1
        missed += journal.find("r499") is None
    compacting.join()
    journal.close()
    assert (missed, lookups > 0) == (0, True)


def test_a_line_that_nests_without_end_is_named(tmp_path: Path) -> None:
    (tmp_path / "journal.jsonl").write_bytes(b'{"rows": ' + b"[" * 100_000 + b"\n")
    with pytest.raises(DataError, match=r"journal\.jsonl:1: not a line of the journal \(.*recursion"):
        Journal(tmp_path, kept_rewards=10)


def test_a_lock_that_is_no_file_of_the_servers_is_named(tmp_path: Path) -> None:
    """A pipe was waited for, and a link's file emptied."""
    for name in ("pipe", "link"):
        (tmp_path / name).mkdir()
    os.mkfifo(tmp_path / "pipe" / "lock")
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "link" / "lock").symlink_to(tmp_path / "mine")
    with within(20):
        for name in ("pipe", "link"):
            with pytest.raises(
                DataError, match=f"--state {tmp_path}/{name}: .*lock is no regular file; remove"
            ):
                take_state(tmp_path / name)
    assert (tmp_path / "mine").read_text() == "mine"


def test_answers_of_completions_that_are_only_scored_are_forgotten_too(tmp_path: Path) -> None:
    """A run that is asked for nothing else never has a checkpoint."""
    journal = Journal(tmp_path, kept_rewards=10)
    for number in range(21):
        assert not journal.is_long
        journal.append([replace(entry(number), step=None, ends_step=False, rows=())])
    assert journal.is_long
    journal.compact(0)
    journal.close()
    again = Journal(tmp_path, kept_rewards=10)
    assert [again.find(f"r{number}") is not None for number in (10, 11, 20)] == [False, True, True]
    assert not again.is_long
    again.close()
