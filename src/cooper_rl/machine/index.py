"""Tables on disk for what must be looked up of more rows than memory holds."""

import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager

from cooper_rl.errors import DataError

CACHE_KIB = 16_000
"""Memory of an index; the rest of its pages are in its file."""


@contextmanager
def temporary_index() -> Generator[sqlite3.Connection]:
    """A database of this process alone, below TMPDIR; a killed process leaves nothing, since it has no name.

    Raises:
        DataError: the disk refuses it.
    """
    try:
        # Without an isolation level, Python begins no transactions of its own beside the one below.
        with closing(sqlite3.connect("", isolation_level=None)) as index:
            for setting in ("journal_mode=OFF", "synchronous=OFF", f"cache_size=-{CACHE_KIB}"):
                index.execute(f"PRAGMA {setting}")
            index.execute("BEGIN")  # one transaction: nothing is ever taken back, and nothing outlives it
            yield index
    except sqlite3.Error as error:
        raise DataError(
            f"the temporary index below TMPDIR cannot be written ({error}); free space, or set TMPDIR to a "
            "larger place"
        ) from error
