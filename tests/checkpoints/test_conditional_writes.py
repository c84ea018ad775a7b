"""The trial of a store's conditional writes leaves nothing behind, however it ends."""

from pathlib import Path

import pytest

from cooper_rl.errors import StorageError
from cooper_rl.storage.local import LocalStore
from cooper_rl.storage.probe import check_conditional_writes, remove_probes


class Failing(LocalStore):
    """Fails at its second write, as a server that goes away."""

    num_writes = 0

    def write(self, key: str, data: bytes, *, replaces: str | None) -> str:
        self.num_writes += 1
        if self.num_writes == 2:
            raise StorageError("the server is away")
        return super().write(key, data, replaces=replaces)


class Heedless(LocalStore):
    """Heeds that an object is to be absent, and not which one is to be replaced."""

    def write(self, key: str, data: bytes, *, replaces: str | None) -> str:
        found = self.read(key)
        return super().write(key, data, replaces=found.tag if found and replaces else replaces)


def test_a_server_that_ignores_which_object_is_replaced_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="the server ignores If-Match, so that two runs could overwrite"):
        check_conditional_writes(Heedless(tmp_path))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", [LocalStore, Failing])
def test_no_probe_is_left(tmp_path: Path, kind: type[LocalStore]) -> None:
    if kind is Failing:
        with pytest.raises(StorageError, match="the server is away"):
            check_conditional_writes(Failing(tmp_path))
    else:
        check_conditional_writes(kind(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_probe_of_a_killed_process_is_removed_and_a_file_of_its_name_stays(tmp_path: Path) -> None:
    (tmp_path / "writer-0123456789abcdef").write_bytes(b"probe")
    (tmp_path / "writer-fedcba9876543210").write_bytes(b"somebody's notes")
    (tmp_path / "writer-01234567").write_bytes(b"probe")
    remove_probes(LocalStore(tmp_path))
    assert {path.name for path in tmp_path.iterdir()} == {"writer-fedcba9876543210", "writer-01234567"}
