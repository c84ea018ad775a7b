"""The trial of a store: whether it can be written, and keeps the condition of a write."""

import re
import secrets
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from cooper_rl.errors import StorageError, WriteConflictError
from cooper_rl.machine.daemon_pool import wait_at_most
from cooper_rl.storage.base import ObjectStore

GIVE_UP_SECONDS = 10.0
_START = "writer-"
_PROBE = re.compile(r"writer-[0-9a-f]{16}")
_CONTENTS = (b"probe", b"second", b"third")
_OTHER_TAG = "0123456789abcdef0123456789abcdef"
"""A tag that no content of ours has."""


def check_conditional_writes(store: ObjectStore) -> None:
    """Find out whether a store can be written, and safely.

    Raises:
        StorageError: refused, full, unreachable, or a server that ignores conditions.
    """
    probe = f"{_START}{secrets.token_hex(8)}"
    first, *others = _CONTENTS
    store.write(probe, first, replaces=None)
    ignored: list[str] = []
    # With other content: S3Store takes the same content for its own write whose answer was lost.
    for content, condition in zip(others, ("If-None-Match", "If-Match"), strict=True):
        try:
            store.write(probe, content, replaces=None if condition == "If-None-Match" else _OTHER_TAG)
            ignored.append(condition)
        except WriteConflictError:
            pass
        except StorageError:
            # Nothing else would ever remove it, and each further try leaves another.
            try_for_a_moment(partial(store.delete, [probe]))
            raise
    store.delete([probe])
    if ignored:
        raise StorageError(
            f"{store.uri}: the server ignores {' and '.join(ignored)}, so that two runs could overwrite each "
            "other; use one with conditional writes (MinIO, AWS, Ceph; Ceph 16 only in a bucket that keeps "
            "no versions)"
        )


def remove_probes(store: ObjectStore) -> None:
    """Remove probes that killed processes left, where no living one can be trying the store.

    Raises:
        StorageError: the store cannot be used.
    """
    for key in filter(_PROBE.fullmatch, store.keys(_START)):
        found = store.read(key)
        if found is not None and found.data in _CONTENTS:
            store.delete([key])


def try_for_a_moment(call: Callable[[], None]) -> None:
    """Call what tidies up after an error; a store that is away neither hides the error nor holds it up."""

    def call_quietly() -> None:
        with suppress(StorageError):
            call()

    wait_at_most(GIVE_UP_SECONDS, call_quietly)
