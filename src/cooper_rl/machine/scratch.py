"""Temporary folders that do not outlive their run, not even one that was killed.

    <TMPDIR>/cooper-rl-k3j9x2ab/
        .cooper-rl-scratch       marks the folder as ours; locked while its owner lives
        files/                   what the owner sees

Every new folder first removes those whose owner is gone. A folder without the mark, of another user or behind
a link is never touched.
"""

import logging
import os
import shutil
import stat
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from cooper_rl.errors import StorageError
from cooper_rl.machine.locking import abandoned, lock

logger = logging.getLogger(__name__)

PREFIX = "cooper-rl-"
MARK = ".cooper-rl-scratch"
_MARK_TEXT = b"A temporary folder of Cooper-RL, removed by its next start when its owner is gone.\n"


@contextmanager
def scratch_folder() -> Generator[Path]:
    """A new folder below TMPDIR, removed when the block ends.

    Raises:
        StorageError: none can be made: the disk is full, or nothing can be written.
    """
    with _explained():
        remove_abandoned(Path(tempfile.gettempdir()))
        folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        handle = os.open(folder / MARK, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        files = folder / "files"
        with _explained():
            # An empty mark is no mark: without locks it stays so, and until it is written others may lock it.
            with suppress(StorageError):
                lock(handle, place=folder)
                os.write(handle, _MARK_TEXT)
            files.mkdir()
        yield files
    finally:
        # Files first, lock last: while it is held nobody takes the folder for abandoned.
        shutil.rmtree(folder, ignore_errors=True)
        os.close(handle)


@contextmanager
def _explained() -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"no temporary folder can be made ({error}); free space, or set TMPDIR to a folder that can be "
            "written to"
        ) from error


def remove_abandoned(root: Path) -> list[Path]:
    """Remove scratch folders of processes that ended without doing so; returns those that are gone."""
    removed = []
    for folder in sorted(root.glob(f"{PREFIX}*")):
        with suppress(OSError, StorageError):  # removed meanwhile, or without a lock to tell the living by
            if _is_abandoned(folder):
                logger.info("removed %s, which a run that was killed had left", folder)
                removed.append(folder)
    return removed


def _is_abandoned(folder: Path) -> bool:
    """True if the folder was ours and without an owner; it is removed then, under its lock."""
    found = folder.lstat()
    # lstat: a link of this name is not followed, whatever it points to.
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        return False
    with abandoned(folder / MARK) as content:
        if content == _MARK_TEXT:
            shutil.rmtree(folder)
        return content == _MARK_TEXT
