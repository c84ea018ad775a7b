"""Locks between processes, and what a file system without them is told as."""

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cooper_rl.errors import ConfigError, StorageError
from cooper_rl.machine.locking import lock, lock_or_refuse, only_process_in
from cooper_rl.storage.local import LocalStore

HOLD = """
import os, sys, time
from cooper_rl.machine.locking import lock
lock(os.open(sys.argv[1], os.O_RDWR), place="here")
print("locked", flush=True)
time.sleep(600)
"""


def test_a_lock_is_held_until_its_process_is_killed(tmp_path: Path) -> None:
    place = tmp_path / "lock"
    place.touch()
    other = subprocess.Popen([sys.executable, "-c", HOLD, str(place)], stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None
    assert other.stdout.readline() == "locked\n"
    handle = os.open(place, os.O_RDWR)
    try:
        assert not lock(handle, place=place, wait=False)
        other.kill()
        other.wait()
        assert lock(handle, place=place)
    finally:
        os.close(handle)
        other.stdout.close()


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EBADF])
def test_a_file_system_without_locks_is_named_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def refuse(handle: int, operation: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(StorageError, match=r"its file system has no locks .*Lustre: -o flock"):
        LocalStore(tmp_path / "store").write("LATEST", b"step-000001", replaces=None)


def test_a_broken_disk_is_no_missing_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(handle: int, operation: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(fcntl, "flock", fail)
    with pytest.raises(OSError, match="Input/output error"):
        lock(0, place=tmp_path)


def test_a_second_process_in_a_folder_is_refused_and_told_which(tmp_path: Path) -> None:
    with (
        only_process_in(tmp_path),
        pytest.raises(ConfigError, match=f"{tmp_path}: another process works here; wait until it"),
        only_process_in(tmp_path),
    ):
        pass
    with only_process_in(tmp_path):
        pass


def test_without_locks_one_process_works_as_before(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(handle: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with (tmp_path / "file").open("w") as file:
        lock_or_refuse(file.fileno(), place=tmp_path)
