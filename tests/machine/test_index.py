"""A temporary index is out of memory, out of sight, and says so when the disk is full."""

import os
import resource
from pathlib import Path

import pytest

from cooper_rl.errors import DataError
from cooper_rl.machine.index import temporary_index
from tests.full_disk import no_file_beyond

MIB = 1024**2


def fill(num_rows: int) -> None:
    """Rows of over 5000 bytes, in no order."""
    with temporary_index() as index:
        index.execute("CREATE TABLE kept (key BLOB PRIMARY KEY, text TEXT) WITHOUT ROWID")
        for _ in range(num_rows):
            index.execute("INSERT INTO kept VALUES (?, ?)", [os.urandom(16), "x" * 5000])


def test_an_index_is_on_disk_beyond_its_cache_and_its_file_has_no_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SQLITE_TMPDIR", str(tmp_path))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    fill(20_000)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before < 60 * MIB
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_named_with_the_variable_that_helps() -> None:
    refused = r"the temporary index below TMPDIR cannot be written \(.*\); free space, or set TMPDIR to"
    with no_file_beyond(MIB), pytest.raises(DataError, match=refused):
        fill(10_000)
