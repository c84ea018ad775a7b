"""Exclusive locks between processes (flock). The kernel releases a lock when its holder ends in any way."""

import errno
import fcntl
import os
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from cooper_rl.errors import ConfigError, StorageError

_NO_LOCKS = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EBADF, errno.EINVAL}
"""NFS with `nolock` answers ENOLCK, Lustre without `-o flock` and most FUSE file systems ENOSYS or
EOPNOTSUPP; NFS answers EBADF for a folder, which cannot be opened for writing."""

_MAX_MARK_BYTES = 1024
"""More than any mark of ours has, so that a longer file is told from one."""


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
def abandoned(mark: Path) -> Generator[bytes | None]:
    """The text of a file whose owner kept it locked, and is gone; it is locked in the block.

    None: the owner lives, or is another user, or it is no regular file.

    Raises:
        OSError: the file is gone, or a link.
        StorageError: the file system has no locks.
    """
    # A folder may be everybody's: behind a link, another user could have us remove what is ours elsewhere.
    # And nobody may ever write into a pipe of this name.
    handle = os.open(mark, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        found = os.fstat(handle)
        is_own = found.st_uid == os.getuid() and stat.S_ISREG(found.st_mode)
        # Under the lock: two processes that start together must not both remove.
        yield os.read(handle, _MAX_MARK_BYTES) if is_own and lock(handle, place=mark, wait=False) else None
    finally:
        os.close(handle)


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
