"""The contract of a place for checkpoints, which a local folder and an S3 server both fulfil (row 13).

`storage/local.py` and `storage/s3.py` implement it, `storage/open.py` chooses; one suite of tests runs
against both. `checkpoints/store.py` gives the objects their meaning.
"""

import hashlib
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from cooper_rl.errors import DamagedObjectError, StorageError
from cooper_rl.records.written import file_sha256

BLOCK_BYTES = 1 << 18
"""Bytes hashed and written at a time: they fit the fastest cache of a processor core."""
PIECE_BYTES = 32 << 20
"""Size of a piece, which has a hash of its own: pieces of a large file are verified in parallel, while they
arrive."""


class Content(NamedTuple):
    """A small object."""

    data: bytes
    tag: str
    """Changes whenever the object is written with other content; see `ObjectStore.write`."""

    @property
    def name(self) -> str:
        """The name that a pointer holds: that of another object, as it stands there."""
        return self.data.decode(errors="replace").strip()


class ObjectStore(Protocol):
    """Objects by key. A key is a relative path with `/`; every method raises StorageError, and names it."""

    @property
    def uri(self) -> str:
        """Address of the store, without credentials."""
        ...

    def put_file(self, key: str, path: Path, *, sha256: str, may_link: bool = False) -> None:
        """Store a file of any size and `content_sha256`; the object is absent, the old one, or complete.

        `may_link`: nobody changes the file any more, so that a store on this machine need not copy it.
        """
        ...

    def get_file(self, key: str, path: Path, *, sha256: str) -> None:
        """Fetch into `path`, which is absent, the old one, or complete and verified.

        Args:
            key: the object.
            path: the file.
            sha256: `content_sha256`, or `file_sha256` where somebody else wrote the object.

        Raises:
            DamagedObjectError: missing, or not of this hash.
        """
        ...

    def read(self, key: str) -> Content | None:
        """A small object, or None when there is none."""
        ...

    def write(self, key: str, data: bytes, *, replaces: str | None) -> str:
        """Write a small object only if it still has the tag `replaces` (None: only if it is absent).

        Returns:
            The new tag.

        Raises:
            WriteConflictError: somebody else wrote first; nothing was changed.
        """
        ...

    def tag_among(self, key: str, contents: Iterable[bytes]) -> str | None:
        """The tag that `write` compares with now, if the object is known to be one of these.

        It may be newer than what `read` shows. A client that is killed while it writes may leave the object
        on half of MinIO's drives: writes and listings then go by the new one, and reads by chance.
        """
        ...

    def holds(self, key: str, sha256: str) -> bool:
        """True if the object is there and was stored with this hash."""
        ...

    def keys(self, prefix: str) -> list[str]:
        """Every complete object whose key starts with `prefix`, sorted."""
        ...

    def delete(self, keys: Sequence[str]) -> None:
        """Remove objects; absent ones are no error."""
        ...

    def remove_unfinished(self, objects: Iterable[tuple[str, str]]) -> int:
        """Remove what interrupted writes of these objects (key, hash) left behind; returns how many.

        Unfinished writes of other keys belong to somebody else and stay. Those of other content stay where
        the store knows what was being written: a folder does. S3 shows no metadata of an upload before it is
        complete, so there every unfinished upload of these keys is removed.
        """
        ...

    def path_of(self, key: str) -> Path | None:
        """The object as a file on this machine that may be read in place, or None."""
        ...


def fetch_file(store: ObjectStore, key: str, sha256: str, *, folder: Path) -> Path:
    """A verified file: in place where the store is local, else below `folder`.

    Raises:
        DamagedObjectError: missing or changed; names it.
    """
    in_place = store.path_of(key)
    if in_place is None:
        store.get_file(key, folder / key, sha256=sha256)
        return folder / key
    if not in_place.is_file():
        raise DamagedObjectError(f"{in_place}: missing since it was written; use an earlier checkpoint")
    if not is_unharmed(in_place, sha256):
        raise DamagedObjectError(f"{in_place}: changed since it was written; use an earlier checkpoint")
    return in_place


def check_key(key: str) -> str:
    """The key, once it is certain that it stays below its store.

    Raises:
        StorageError: absolute, with `.` or `..`, with empty parts, or with characters that file systems
            and servers read differently.
    """
    parts = key.split("/")
    # S3 takes names of up to 1,024 bytes, and the store's prefix is a part of them.
    if len(key) > 900 or any(part in {"", ".", ".."} or not _is_plain(part) for part in parts):
        raise StorageError(
            f"object name {key[:200]!r} is refused: it must be a relative path of plain names without '..'; "
            "if it stands in a manifest, that checkpoint was not written by Cooper-RL"
        )
    return key


def files_below(folder: Path) -> list[str]:
    """Relative paths of all files, sorted."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def content_sha256(path: Path) -> str:
    """The hash of a stored file: `joined_sha256` of its pieces."""
    digests: list[bytes] = []
    with path.open("rb") as content:
        for start in range(0, path.stat().st_size, PIECE_BYTES):
            found = hashlib.sha256()
            # Past the end a read gives nothing, which changes no hash.
            for _ in range(start, start + PIECE_BYTES, BLOCK_BYTES):
                found.update(content.read(BLOCK_BYTES))
            digests.append(found.digest())
    return joined_sha256(digests)


def joined_sha256(digests: Sequence[bytes]) -> str:
    """The sha256 of one piece; of several the sha256 of theirs and their number, `…-3`, like S3's tags."""
    if len(digests) > 1:
        return f"{hashlib.sha256(b''.join(digests)).hexdigest()}-{len(digests)}"
    return (digests[0] if digests else hashlib.sha256().digest()).hex()


def is_unharmed(path: Path, sha256: str) -> bool:
    """True if a file has this `content_sha256` or `file_sha256`."""
    return (content_sha256(path) if "-" in sha256 else file_sha256(path)) == sha256


def _is_plain(part: str) -> bool:
    return re.fullmatch(r"[^\x00-\x1f\x7f\\:*?\"<>|]+", part) is not None
