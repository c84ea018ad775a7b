"""Exclusive locks between processes (flock). The kernel releases a lock when its holder ends in any way."""

import errno
import fcntl

from cooper_rl.errors import StorageError

_NO_LOCKS = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EBADF, errno.EINVAL}
"""NFS with `nolock` answers ENOLCK, Lustre without `-o flock` and most FUSE file systems ENOSYS or
EOPNOTSUPP; NFS answers EBADF for a folder, which cannot be opened for writing."""


def lock(handle: int, *, place: object, wait: bool = True) -> bool:
    """Lock an open file or folder until its handle is closed; False: another process holds it (`wait=False`).

    Raises:
        StorageError: the file system has no locks; names the place.
    """
    try:
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
