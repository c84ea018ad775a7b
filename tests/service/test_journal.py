"""The journal of a run, asked while it is written again."""

import threading
from dataclasses import replace
from pathlib import Path

from cooper_rl.api.rows import Row
from cooper_rl.service.journal import Entry, Journal


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
