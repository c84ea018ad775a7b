"""Objects as files in a folder: the store that needs no server (row 13).

Every object is written beside its place and moved there. The name of a draft holds the hash of its content,
which tells a leftover of a known object from any other file. A conditional write holds a lock on the folder,
so it is atomic between processes of one machine, and over NFS where that has locks.
"""

import hashlib
import os
import re
import secrets
import shutil
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from cooper_rl.errors import DamagedObjectError, StorageError, WriteConflictError
from cooper_rl.machine.drafts import draft_beside, flush
from cooper_rl.machine.locking import lock
from cooper_rl.records.written import file_sha256
from cooper_rl.storage.base import Content, check_key, is_unharmed

PARTIAL = ".partial"
_DRAFT = re.compile(r".+\.[0-9a-f]{16}-[0-9a-f]{8}\.partial")


class LocalStore:
    """`ObjectStore` in a folder, which is made with the first write."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def uri(self) -> str:
        return str(self._folder)

    def put_file(self, key: str, path: Path, *, sha256: str, may_link: bool = False) -> None:
        with self._draft(key, sha256) as draft:
            is_linked = False
            if may_link:
                with suppress(OSError):  # another file system, or one without links
                    # A link costs no time and no space for a model of gigabytes; what was drafted is never
                    # changed afterwards.
                    os.link(path, draft)
                    is_linked = True
            if not is_linked:
                shutil.copyfile(path, draft)
            flush(draft)

    def get_file(self, key: str, path: Path, *, sha256: str) -> None:
        source = self._place(key)
        if not source.is_file():
            raise DamagedObjectError(f"{source}: missing since it was written; use an earlier checkpoint")
        try:
            with draft_beside(path) as draft:
                shutil.copyfile(source, draft.partial)
                # The copy is checked and not the source: what counts is what arrived.
                if not is_unharmed(draft.partial, sha256):
                    raise DamagedObjectError(
                        f"{source}: changed since it was written; use an earlier checkpoint"
                    )
                draft.partial.replace(path)
        except OSError as error:
            raise _explain(path, error) from error

    def read(self, key: str) -> Content | None:
        place = self._place(key)
        try:
            # To open a pipe would wait for its writer, and some devices never end.
            if place.exists() and not (place.is_file() or place.is_dir()):
                raise StorageError(f"{place}: is no regular file; move it away, or use another place")
            data = place.read_bytes()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None
        except OSError as error:
            raise _explain(place, error) from error
        return Content(data, _tag(data))

    def write(self, key: str, data: bytes, *, replaces: str | None) -> str:
        place = self._place(key)
        # Compare and write under one lock: between the two, another run could publish.
        with locked(self._folder):
            found = self.read(key)
            if (found.tag if found else None) != replaces:
                raise WriteConflictError(
                    f"{place}: somebody else wrote it; two runs use this folder: stop one of them"
                )
            # Under the lock nobody else drafts it: such a draft is of a process that was killed. Behind a
            # link it may be another store's, whose lock is another one.
            self._check_no_link(place.parent)
            self._remove_drafts(place)
            with self._draft(key, _tag(data)) as draft:
                draft.write_bytes(data)
                flush(draft)
        return _tag(data)

    def tag_among(self, key: str, contents: Iterable[bytes]) -> str | None:
        found = self.read(key)
        return found.tag if found and found.data in set(contents) else None

    def holds(self, key: str, sha256: str) -> bool:
        place = self._place(key)
        try:
            return place.is_file() and is_unharmed(place, sha256)
        except OSError as error:
            raise _explain(place, error) from error

    def keys(self, prefix: str) -> list[str]:
        return sorted(key for key in self._files(prefix) if not _DRAFT.fullmatch(key))

    def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            place = self._place(key)
            try:
                place.unlink(missing_ok=True)
                self._remove_empty(place.parent)
            except OSError as error:
                raise _explain(place, error) from error

    def remove_unfinished(self, objects: Iterable[tuple[str, str]]) -> int:
        found: list[str] = []
        for key, sha256 in objects:
            folder, _, name = check_key(key).rpartition("/")
            draft = re.compile(re.escape(_draft_start(name, sha256)) + r"[0-9a-f]{8}\.partial")
            found += [
                f"{folder}/{other}".lstrip("/") for other in self._names(folder) if draft.fullmatch(other)
            ]
        self.delete(found)
        return len(found)

    def path_of(self, key: str) -> Path | None:
        return self._place(key)

    def _place(self, key: str) -> Path:
        return self._folder / check_key(key)

    def _files(self, prefix: str) -> Generator[str]:
        """Keys that start so. Entries of the root that do not are not walked: they may be large."""
        top = prefix.partition("/")[0]
        for entry in self._names(""):
            # Before a slash stands a whole name, without one the beginning of a name.
            if not (entry == top if "/" in prefix else entry.startswith(top)):
                continue
            place = self._folder / entry
            # A link is not followed: below it may lie anything, and what is listed may be removed.
            if place.is_symlink() or not place.is_dir():
                found = [entry]
            else:
                # Unlike rglob, it passes over a folder that another process removes meanwhile. A link to a
                # folder is an object of that name: without it the name would count as free.
                found = [
                    path.relative_to(self._folder).as_posix()
                    for folder, folders, names in os.walk(place)
                    for path in map(Path(folder).joinpath, [*folders, *names])
                    if path.name in names or path.is_symlink()
                ]
            yield from (key for key in found if key.startswith(prefix))

    def _names(self, folder: str) -> list[str]:
        try:
            return [entry.name for entry in (self._folder / folder).iterdir()]
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise _explain(self._folder / folder, error) from error

    def _remove_empty(self, folder: Path) -> None:
        with suppress(OSError):  # not empty, a link, or removed by another process
            while folder != self._folder:
                folder.rmdir()
                folder = folder.parent

    def _remove_drafts(self, place: Path) -> None:
        """Remove drafts of an object: files of a draft's name with the content that it tells."""
        pattern = re.compile(re.escape(place.name) + r"\.([0-9a-f]{16})-[0-9a-f]{8}\.partial")
        for name in self._names(place.parent.relative_to(self._folder).as_posix()):
            draft, named = place.with_name(name), pattern.fullmatch(name)
            if named is None or draft.is_symlink() or not draft.is_file():
                continue
            with suppress(OSError):  # gone by now, or of another user: the write does not need it removed
                if file_sha256(draft).startswith(named[1]):
                    draft.unlink()

    def _check_no_link(self, folder: Path) -> None:
        """Refuse to write through a link: `keys` does not follow it, so nobody has looked behind it."""
        while folder != self._folder:
            if folder.is_symlink():
                raise StorageError(
                    f"{folder}: is a link, behind which files of others may lie; move it away, or use "
                    "another place"
                )
            folder = folder.parent

    @contextmanager
    def _draft(self, key: str, sha256: str) -> Generator[Path]:
        """A path beside the object that takes its place when the block ends without an error."""
        place = self._place(key)
        self._check_no_link(place.parent)
        draft = place.with_name(f"{_draft_start(place.name, sha256)}{secrets.token_hex(4)}{PARTIAL}")
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            yield draft
            draft.replace(place)
        except OSError as error:
            if isinstance(error, FileNotFoundError) and str(error.filename) == str(draft):
                raise WriteConflictError(
                    f"{place}: somebody else removed it; two runs use this folder: stop one of them"
                ) from error
            raise _explain(place, error) from error
        finally:
            draft.unlink(missing_ok=True)


@contextmanager
def locked(folder: Path) -> Generator[None]:
    """The block runs in one process at a time of those that name this folder, which is made.

    Raises:
        StorageError: the folder cannot be used, or its file system has no locks.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise _explain(folder, error) from error
    try:
        lock(handle, place=folder)
        yield
    finally:
        os.close(handle)


def _draft_start(name: str, sha256: str) -> str:
    return f"{name}.{sha256[:16]}-"


def _explain(place: Path, error: OSError) -> StorageError:
    return StorageError(f"{place}: cannot be used ({error}); free space or choose another folder")


def _tag(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
