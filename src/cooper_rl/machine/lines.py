"""An append-only file of lines, under every journal; a process killed at any moment loses at most one."""

import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from cooper_rl.machine.drafts import draft_beside, flush, settle_drafts
from cooper_rl.machine.locking import lock_or_refuse


class LineFile:
    """Lines that are appended whole or not at all. Not safe from threads.

    The methods raise the disk's OSError: what was being written, and what helps, is known to the caller. So
    does a path that is no regular file.

    Args:
        path: Created, with its folder, when absent. A last line without its end is cut off: a process was
            killed, or the machine lost power, while it was written.
        is_exclusive: Refuse a file that another process has opened in the same way.
        is_durable: What was appended survives a loss of power; otherwise, the end of the process.

    Raises:
        ConfigError: another process has opened it.
    """

    def __init__(self, path: Path, *, is_exclusive: bool = False, is_durable: bool = False) -> None:
        self._path = path
        self._is_durable = is_durable
        path.parent.mkdir(parents=True, exist_ok=True)
        # Of a process that was killed in `replace`: on a full disk it holds the room of the next line.
        settle_drafts(path.parent)
        # To open a pipe would wait for its reader, and a device keeps no line.
        if path.exists() and not path.is_file():
            raise FileExistsError(errno.EEXIST, "what has this name is no regular file", str(path))
        # Unbuffered: what `append` returned from has been given to the kernel, and outlives this process.
        self._file = path.open("ab", buffering=0)
        try:
            if is_exclusive:
                lock_or_refuse(self._file.fileno(), place=path)
            self._size = self._whole_size()
            self._undo()
            self._flush_folder()
        except BaseException:
            self._file.close()
            raise

    def __iter__(self) -> Iterator[bytes]:
        """All lines from the first one on, without their ends."""
        with self._path.open("rb") as lines:
            for line in lines:
                yield line.removesuffix(b"\n")

    def append(self, *lines: bytes) -> None:
        """Append lines, given without their ends: all of them or, on an error, none."""
        # What a failed append could not cut off itself: this line would otherwise go on with it.
        self._undo()
        content = memoryview(b"".join(line + b"\n" for line in lines))
        try:
            size = self._size + len(content)
            while content:
                # A write can be short: on a disk that fills up, or when a signal arrives.
                content = content[self._file.write(content) :]
            self._flush()
        except OSError:
            with suppress(OSError):  # the next call tries again, and writes nothing before it succeeds
                self._undo()
            raise
        self._size = size

    def replace(self, lines: Iterable[bytes]) -> None:
        """Write the whole file again; on an error, it stays as it was. The lines may be read from it."""
        with draft_beside(self._path) as draft:
            with draft.partial.open("wb") as file:
                file.writelines(line + b"\n" for line in lines)
                file.flush()
                # Before the rename: else the name may reach the disk before the content, and power lost in
                # between leaves an empty file.
                os.fsync(file.fileno())
            # Atomic within a file system: a reader sees the old lines or the new ones.
            draft.partial.replace(self._path)
        # A lock goes with the file that was replaced: an exclusive one must not be written anew this way.
        self._file.close()
        self._file = self._path.open("ab", buffering=0)
        self._size = self._whole_size()
        self._flush_folder()

    def close(self) -> None:
        self._file.close()

    def _whole_size(self) -> int:
        """Bytes up to the end of the last whole line."""
        with self._path.open("rb") as lines:
            return sum(len(line) for line in lines if line.endswith(b"\n"))

    def _undo(self) -> None:
        """Cut off what is not a whole appended line."""
        if os.fstat(self._file.fileno()).st_size != self._size:
            self._file.truncate(self._size)
            self._flush()

    def _flush(self) -> None:
        if self._is_durable:
            os.fsync(self._file.fileno())

    def _flush_folder(self) -> None:
        """Make the file's name as durable as its content."""
        if self._is_durable:
            # The name of a file is data of its folder, which has a flush of its own.
            flush(self._path.parent)
