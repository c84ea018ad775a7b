"""Temporary folders: removed at the end, or by the next start; nobody else's is ever touched."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cooper_rl.errors import StorageError
from cooper_rl.machine.scratch import MARK, scratch_folder
from tests.full_disk import no_file_beyond
from tests.machine.owners import ending, start_owner

OWNER = """
import sys, time
from cooper_rl.machine.scratch import scratch_folder
with scratch_folder() as folder:
    (folder / "weights").write_bytes(b"x" * 1000)
    print(folder, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_a_folder_is_removed_when_its_block_ends(temporary: Path) -> None:
    def fail() -> None:
        with scratch_folder() as folder:
            (folder / "file").touch()
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert list(temporary.iterdir()) == []


def test_a_killed_owners_folder_is_removed_by_the_next_start_and_no_living_ones(
    temporary: Path,
) -> None:
    killed, left = start_owner(OWNER, TMPDIR=str(temporary))
    living, used = start_owner(OWNER, TMPDIR=str(temporary))
    with ending(killed, living):
        killed.kill()
        killed.wait()
        assert left.is_dir()
        with scratch_folder() as own:
            assert not left.parent.exists()
            assert (used / "weights").is_file()
            assert own.is_dir()


def test_a_machine_without_a_folder_for_temporary_files_is_told_what_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", None)
    # Python's own list is /tmp, /var/tmp and others, of which none can be written in a read-only container.
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: [str(tmp_path / "nothing")])
    with (
        pytest.raises(StorageError, match=r"no temporary folder can be made \(.*set TMPDIR to a folder that"),
        scratch_folder(),
    ):
        pass


def test_a_full_disk_under_the_mark_is_told_and_leaves_nothing(temporary: Path) -> None:
    with (
        no_file_beyond(0),
        pytest.raises(StorageError, match=r"no temporary folder can be made \(.*; free space, or set TMPDIR"),
        scratch_folder(),
    ):
        pass
    assert list(temporary.iterdir()) == []


def test_two_folders_of_one_process_live_beside_each_other(temporary: Path) -> None:
    with scratch_folder() as first, scratch_folder() as second:
        assert first.is_dir()
        assert second.is_dir()


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.sampled_from(["cooper-rl-", "cooper-rl-abc", "cooper-rl-abc.partial", "cooper", "x-cooper-rl-a"]),
    mark=st.none() | st.sampled_from([b"", b"A temporary folder of Cooper-RL"]) | st.binary(max_size=200),
    inner=st.sampled_from(["thesis.txt", "files/thesis.txt", MARK + ".draft"]),
    is_link=st.booleans(),
)
def test_no_folder_of_anybody_else_is_touched(
    temporary: Path, name: str, mark: bytes | None, inner: str, *, is_link: bool
) -> None:
    """Folders with our name and another mark or none, and links to folders with our very mark."""
    place = Path(tempfile.mkdtemp(dir=temporary))
    target = place / "elsewhere" if is_link else place / name
    (target / inner).parent.mkdir(parents=True)
    (target / inner).write_bytes(b"mine")
    if is_link:
        with scratch_folder() as own:
            mark = (own.parent / MARK).read_bytes()
        (place / name).symlink_to(target)
    if mark is not None:
        (target / MARK).write_bytes(mark)
    before = tempfile.tempdir
    tempfile.tempdir = str(place)
    try:
        with scratch_folder():
            pass
    finally:
        tempfile.tempdir = before
    assert (target / inner).read_bytes() == b"mine"
