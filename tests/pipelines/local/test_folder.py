"""The folder of local runs: who uses it, and which of its folders are runs."""

from pathlib import Path

import pytest

from cooper_rl.errors import ConfigError
from pipelines.local.folder import IN_USE, leased, run_folders
from tests.full_disk import no_file_beyond


def test_a_copy_of_a_folder_in_use_names_nobody_to_end(tmp_path: Path) -> None:
    """The run of the original may be under way."""
    original, copy = tmp_path / "original", tmp_path / "copy"
    with leased(original, has_containers=False):
        copy.mkdir()
        (copy / IN_USE).write_bytes((original / IN_USE).read_bytes())
        with leased(copy, has_containers=False) as lease:
            assert lease.before is None


def test_a_full_disk_is_one_message_and_the_killed_run_stays_known(tmp_path: Path) -> None:
    """A write that the disk refuses takes nothing of what was there."""
    with leased(tmp_path, has_containers=False):
        killed = (tmp_path / IN_USE).read_bytes()
    for before in (b"", killed):
        (tmp_path / IN_USE).write_bytes(before)
        with (
            no_file_beyond(0),
            pytest.raises(ConfigError, match="cannot be written: File too large; free space or give"),
            leased(tmp_path, has_containers=False),
        ):
            raise AssertionError
        assert (tmp_path / IN_USE).read_bytes() == before


def test_a_folder_that_only_begins_like_a_run_is_none(tmp_path: Path) -> None:
    for name in (
        "end-to-end-2026-11-28-02-07-01-123456",
        "end-to-end-2026-backup",
        "retrain-2026-11-28-02-07-01-1",
    ):
        (tmp_path / name).mkdir()
    assert [path.name for path in run_folders(tmp_path, "end-to-end")] == [
        "end-to-end-2026-11-28-02-07-01-123456"
    ]
