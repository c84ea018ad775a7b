"""The journal of a search: what was computed once is not computed again, in the order of the first time."""

import re
from pathlib import Path

import pytest

from cooper_rl.errors import ConfigError, DataError
from cooper_rl.redteam.journal import Journal
from tests.full_disk import no_file_beyond


def test_results_are_recalled_in_their_order_and_then_computed(tmp_path: Path) -> None:
    with Journal(tmp_path / "j") as journal:
        assert [journal.result(name, lambda name=name: [name, 0.1]) for name in "ab"] == [
            ["a", 0.1],
            ["b", 0.1],
        ]
    with Journal(tmp_path / "j") as journal:
        assert journal.num_recorded == 2
        assert [journal.result(name, lambda: None) for name in "abc"] == [["a", 0.1], ["b", 0.1], None]


def test_a_torn_line_is_a_result_that_never_was(tmp_path: Path) -> None:
    with Journal(tmp_path / "j") as journal:
        journal.result("a", lambda: 1)
    with (tmp_path / "j").open("a") as file:
        file.write('["b", [0.')
    with Journal(tmp_path / "j") as journal:
        assert journal.result("a", lambda: 5) == 1
        assert journal.result("b", lambda: 2) == 2
    assert (tmp_path / "j").read_text() == '["a", 1]\n["b", 2]\n'


def test_a_second_search_with_one_journal_is_refused_and_the_first_loses_nothing(tmp_path: Path) -> None:
    with Journal(tmp_path / "j") as journal:
        journal.result("a", lambda: 1)
        with pytest.raises(ConfigError, match="j: another process works here; wait until it has ended"):
            Journal(tmp_path / "j").__enter__()
        journal.result("b", lambda: 2)
    assert (tmp_path / "j").read_text() == '["a", 1]\n["b", 2]\n'


def test_time_goes_on_where_an_earlier_start_ended(tmp_path: Path) -> None:
    (tmp_path / "j").write_text('["seconds", 100.0]\n["seconds", 200.0]\n')
    with Journal(tmp_path / "j") as journal:
        assert [journal.seconds(), journal.seconds()] == [100.0, 200.0]
        assert 200.0 <= journal.seconds() < 260.0


def test_the_journal_of_another_search_is_refused(tmp_path: Path) -> None:
    (tmp_path / "j").write_text('["scores ab", [0.5]]\n')
    with Journal(tmp_path / "j") as journal, pytest.raises(DataError, match=re.escape(
        "j:1: holds a result for 'scores ab' where this search asks for 'scores cd'; remove the file"
    )):  # fmt: skip
        journal.result("scores cd", lambda: [0.5])


@pytest.mark.parametrize("line", ["not json", '{"key": 1}', "[1, 2, 3]"])
def test_a_damaged_journal_is_refused(tmp_path: Path, line: str) -> None:
    (tmp_path / "j").write_text(line + "\n")
    with pytest.raises(DataError, match=r"j:1: no result of a search; remove the file to search anew"):
        Journal(tmp_path / "j").__enter__()


def test_a_damaged_journal_is_free_once_it_is_refused(tmp_path: Path) -> None:
    """The error, whose traceback holds the journal, is kept meanwhile."""
    (tmp_path / "j").write_text("not json\n")
    with pytest.raises(DataError) as refused:
        Journal(tmp_path / "j").__enter__()
    (tmp_path / "j").write_text("")
    with Journal(tmp_path / "j") as journal:
        assert journal.result("a", lambda: 1) == 1
    assert "remove the file" in str(refused.value)


def test_a_journal_that_cannot_be_opened_or_was_not_is_told(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(DataError, match=r"folder: the journal of the search cannot be opened .*free"):
        Journal(tmp_path / "folder").__enter__()
    with pytest.raises(RuntimeError, match="the journal is not open; search inside its `with` block"):
        Journal(tmp_path / "j").result("a", lambda: 1)


def test_a_full_disk_is_told(tmp_path: Path) -> None:
    refusal = pytest.raises(DataError, match=r"j: a result cannot be written .* free space and start again")
    with Journal(tmp_path / "j") as journal, no_file_beyond(0), refusal:
        journal.result("a", lambda: 1)
