"""The trial of a store's conditional writes leaves nothing behind, however it ends."""

from pathlib import Path

import pytest

from cooper_rl.checkpoints.store import check_conditional_writes
from cooper_rl.errors import StorageError
from cooper_rl.storage.local import LocalStore


class Failing(LocalStore):
    """Fails at its second write, as a server that goes away."""

    num_writes = 0

    def write(self, key: str, data: bytes, *, replaces: str | None) -> str:
        self.num_writes += 1
        if self.num_writes == 2:
            raise StorageError("the server is away")
        return super().write(key, data, replaces=replaces)


@pytest.mark.parametrize("kind", [LocalStore, Failing])
def test_no_probe_is_left(tmp_path: Path, kind: type[LocalStore]) -> None:
    if kind is Failing:
        with pytest.raises(StorageError, match="the server is away"):
            check_conditional_writes(Failing(tmp_path))
    else:
        check_conditional_writes(kind(tmp_path))
    assert list(tmp_path.iterdir()) == []
