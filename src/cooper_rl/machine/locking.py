"""Exclusive locks between processes (flock). The kernel releases a lock when its holder ends in any way."""

import errno
import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from cooper_rl.errors import ConfigError, StorageError

_NO_LOCKS = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EBADF, errno.EINVAL}
"""NFS with `nolock` answers ENOLCK, Lustre without `-o flock` and most FUSE file systems ENOSYS or
EOPNOTSUPP; NFS answers EBADF for a folder, which cannot be opened for writing."""


def lock(handle: int, *, place: object, wait: bool = True) -> bool:
    """Lock an open file or folder until its handle is closed; False: another process holds it (`wait=False`).

    Raises:
        StorageError: the file system has no locks; names the place.
    """
    try:
        # flock and not lockf: the latter is dropped as soon as the process closes any other handle of the
        # same file.
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        raise StorageError(
            f"{place}: its file system has no locks ({error.strerror}), so two runs could overwrite each "
            "other; use a folder on a local disk, mount it with locks (Lustre: -o flock, NFS: without "
            "nolock), or use an s3:// address"
        ) from error
    return True


def lock_or_refuse(handle: int, *, place: object) -> None:
    """Lock an open file or folder until its handle is closed; where there are no locks, nothing is done.

    Raises:
        ConfigError: another process holds it; names the place.
    """
    with suppress(StorageError):  # what it guards works without locks too, as long as there is one process
        if not lock(handle, place=place, wait=False):
            raise ConfigError(
                f"{place}: another process works here; wait until it has ended, or give another place"
            )


@contextmanager
def only_process_in(folder: Path) -> Generator[None]:
    """The block runs in one process at a time of those that name this folder, which exists.

    Raises:
        ConfigError: another process is in it.
    """
    # The folder itself is locked: a lock file would have to be made, and removing it is a race of its own.
    handle = os.open(folder, os.O_RDONLY)
    try:
        lock_or_refuse(handle, place=folder)
        yield
    finally:
        os.close(handle)
