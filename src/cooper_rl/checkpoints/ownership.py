"""The files that belong to a run in the place of its checkpoints (row 13).

    .cooper-rl                  random id of the place; written once, only if it is absent
    step-000020/writer          claim of a checkpoint: id of the place, name, hash of every file that follows,
                                those of its piece of the log included
    v-0123456789ab/writer-89abcdef   the same of a version in a registry, one for each attempt to promote it

Only files that a claim of this place names are ever removed. A name counts as free only if nothing at all
lies there, so a claim never covers a file of somebody else.
"""

import hashlib
import os
import secrets
from contextlib import suppress
from pathlib import Path

from pydantic import Field, ValidationError

from cooper_rl.checkpoints.manifest import MANIFEST, WRITER
from cooper_rl.checkpoints.reading import read_manifest
from cooper_rl.errors import DamagedObjectError, DataError, StorageError, WriteConflictError
from cooper_rl.schema.data import Record
from cooper_rl.storage.base import ObjectStore

MARKER = ".cooper-rl"
STAGING = ".staging-"
"""Of folders on this machine in which checkpoints are drafted; a killed run leaves one behind."""


class Marker(Record):
    """A place for checkpoints, made by a run."""

    id: str


class Claim(Record):
    """A checkpoint before its first file is written."""

    place: str
    """Id of the place, so that a claim that was copied elsewhere claims nothing there."""
    name: str
    """The checkpoint's name, for the same reason."""
    writer: str
    """Random; tells apart two processes that claim the same name."""
    sha256: dict[str, str]
    """Relative path -> hash of every file, the manifest included."""
    log: dict[str, str] = Field(default_factory=dict[str, str])
    """Name in the place -> hash of every file of its piece of the log."""


def read_marker(store: ObjectStore) -> str | None:
    """The id of a place, or None where no run has marked it.

    Raises:
        StorageError: the object of that name is no marker.
    """
    content = store.read(MARKER)
    if content is None:
        return None
    try:
        return Marker.model_validate_json(content.data).id
    except ValidationError as error:
        raise StorageError(
            f"{store.uri}/{MARKER}: is not the mark of a place for checkpoints; choose another folder or "
            "run_key, or move that file away"
        ) from error


def mark(store: ObjectStore) -> str:
    """Mark a place, unless it is marked already; returns its id.

    Raises:
        StorageError: the store cannot be used, or the marker is invalid.
    """
    found = read_marker(store)
    if found is not None:
        return found
    marker = Marker(id=secrets.token_hex(16))
    try:
        # Only if absent: of two runs that start together one writes its mark, and both read the same.
        store.write(MARKER, marker.model_dump_json().encode(), replaces=None)
    except WriteConflictError:  # another run has just marked it
        return mark(store)
    return marker.id


def claim(
    store: ObjectStore,
    name: str,
    sha256: dict[str, str],
    *,
    place: str,
    writer: str | None = None,
    log: dict[str, str] | None = None,
) -> str:
    """Claim a free name; returns it, or one with a random suffix where it is taken.

    Args:
        store: where the checkpoint goes.
        name: of the checkpoint.
        sha256: see `Claim`.
        place: see `Claim`.
        writer: the random suffix; absent: a new one.
        log: see `Claim`; of one folder.

    Raises:
        StorageError: the store cannot be used.
        WriteConflictError: the name with the suffix is taken too, or the folder of the log is.
    """
    writer, log = writer or secrets.token_hex(4), log or {}
    for folder in {key.rpartition("/")[0] for key in log}:
        if _is_taken(store, folder):
            raise WriteConflictError(f"{store.uri}/{folder}: exists already; start again")
    for free in (name, f"{name}-{writer}"):
        claimed = Claim(place=place, name=free, writer=writer, sha256=sha256, log=log)
        if _is_taken(store, free):
            continue
        try:
            # Before any other file: what a killed run leaves can then be told to be ours.
            store.write(f"{free}/{WRITER}", _dump(claimed), replaces=None)
        except WriteConflictError:
            continue
        return free
    raise WriteConflictError(f"{store.uri}/{name}-{writer}: exists already; start again")


def claim_again(
    store: ObjectStore, name: str, sha256: dict[str, str], *, manifests_name: str
) -> tuple[str, list[dict[str, str]]]:
    """Claim files of a name that earlier writers may have claimed too.

    Args:
        store: where they go.
        name: the folder.
        sha256: see `Claim`.
        manifests_name: a file that every manifest of ours names; another manifest is somebody else's.

    Returns:
        The key of the claim, and path -> hash of every earlier claim of the name that was not removed since:
        what writers that did not end have claimed.

    Raises:
        StorageError: the store cannot be used, or somebody else's file has one of these names: it is not as
            this claim, an earlier one or the manifest says.
    """
    place, writer = mark(store), secrets.token_hex(4)
    folder = store.path_of(name)
    if folder is not None and folder.is_symlink():
        raise StorageError(f"{folder}: is a link; put the folder itself there, or move the link away")
    found = [key for key in store.keys(f"{name}/") if key.removeprefix(f"{name}/") in sha256]
    earlier = _earlier_claims(store, name, place=place)
    claims = [sha256, *earlier, *_manifests_claim(store, name, manifests_name)] if found else []
    for key in found:
        file = key.removeprefix(f"{name}/")
        if not any(store.holds(key, each[file]) for each in claims if file in each):
            raise StorageError(
                f"{store.uri}/{key}: was not written by a promotion, and would be replaced; move it away, or "
                "use another registry.uri"
            )
    key = f"{name}/{WRITER}-{writer}"
    store.write(key, _dump(Claim(place=place, name=name, writer=writer, sha256=sha256)), replaces=None)
    return key, earlier


def _earlier_claims(store: ObjectStore, name: str, *, place: str) -> list[dict[str, str]]:
    read = [_read_claim(store, key) for key in store.keys(f"{name}/{WRITER}-")]
    return [each.sha256 for each in read if each is not None and (each.place, each.name) == (place, name)]


def _manifests_claim(store: ObjectStore, name: str, manifests_name: str) -> list[dict[str, str]]:
    """Path -> hash, of the files that a manifest of ours names and of itself; none without one."""
    content = store.read(f"{name}/{MANIFEST}")
    if content is not None:
        with suppress(DamagedObjectError):
            own = read_manifest(store, name).sha256 | {MANIFEST: hashlib.sha256(content.data).hexdigest()}
            return [own] if manifests_name in own else []
    return []


def read_claim(store: ObjectStore, name: str, *, place: str) -> Claim | None:
    """The claim of a checkpoint, or None where it is not this place's own."""
    claimed = _read_claim(store, f"{name}/{WRITER}")
    return claimed if claimed is not None and (claimed.place, claimed.name) == (place, name) else None


def _read_claim(store: ObjectStore, key: str) -> Claim | None:
    content = store.read(key)
    try:
        return None if content is None else Claim.model_validate_json(content.data)
    except ValidationError:
        return None


def remove(store: ObjectStore, claimed: Claim, *, keeps_log: bool) -> None:
    """Remove a claimed checkpoint: its manifest first, so that nobody takes the rest for one, its claim last.

    Its piece of the log stays where later checkpoints build on it. Of a checkpoint that was never finished,
    only files that are as claimed are removed: somebody else may have put one into the place of one that was
    never written.

    Raises:
        StorageError: the store cannot be used; another attempt may go on.
    """
    files = {f"{claimed.name}/{file}": sha256 for file, sha256 in claimed.sha256.items()}
    files |= {} if keeps_log else claimed.log
    manifest = f"{claimed.name}/{MANIFEST}"
    if manifest in files and store.holds(manifest, files[manifest]):
        # Without its manifest a folder is no checkpoint to anybody; with it, and half of the rest gone, it
        # would be a damaged one.
        own = [manifest, *(key for key in files if key != manifest)]
    else:
        store.remove_unfinished(files.items())
        own = [key for key, sha256 in files.items() if store.holds(key, sha256)]
    # The claim goes last: if this is interrupted, the next run still knows what it may remove.
    store.delete([*own, f"{claimed.name}/{WRITER}"])


def _dump(claimed: Claim) -> bytes:
    return (claimed.model_dump_json(indent=2) + "\n").encode()


def _is_taken(store: ObjectStore, name: str) -> bool:
    place = store.path_of(name)
    if place is not None:
        # Also a link, an empty folder, or a name in other letter case where the file system ignores that.
        return os.path.lexists(place)
    return any(key == name or key.startswith(f"{name}/") for key in store.keys(name))


def staging_folders(work: Path, place: str) -> list[Path]:
    """Folders below `work` in which runs of a place draft checkpoints; others of that name are not ours."""
    return [folder for folder in work.glob(f"{STAGING}*") if _read_mark(folder) == place]


def mark_staging(folder: Path, place: str) -> None:
    """Make a folder that `staging_folders` finds.

    Raises:
        DataError: the disk refuses.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / MARKER).write_text(place, encoding="utf-8")
    except OSError as error:
        raise DataError(f"{folder}: cannot be written ({error}); free space there") from error


def _read_mark(folder: Path) -> str | None:
    try:
        return (folder / MARKER).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return None
