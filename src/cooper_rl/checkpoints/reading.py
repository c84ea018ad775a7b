"""A checkpoint's manifest and files, verified (row 13)."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from cooper_rl.checkpoints.logs import fetch_log
from cooper_rl.checkpoints.manifest import MANIFEST, CheckpointManifest
from cooper_rl.errors import DamagedObjectError, DataError
from cooper_rl.storage.base import ObjectStore, check_key, fetch_file


class Found(NamedTuple):
    """A complete, verified checkpoint on this machine."""

    name: str
    folder: Path
    manifest: CheckpointManifest
    log: Mapping[str, Sequence[Path]] = {}
    """Kind of row -> files with the rows of every step, oldest first; only kinds that were asked for."""


@contextmanager
def read_in_place(folder: Path) -> Generator[None]:
    """A verified checkpoint is read in the block, where a store on this machine has it.

    Raises:
        DataError: a file is gone: another run has a newer checkpoint, and removed this one.
    """
    try:
        yield
    except FileNotFoundError as error:
        raise DataError(
            f"{error.filename or folder}: gone while the checkpoint was read; two runs use this "
            "place: end one of them, or give it a place of its own"
        ) from error


def read_manifest(store: ObjectStore, name: str) -> CheckpointManifest:
    """The manifest of a checkpoint, unharmed.

    Raises:
        DamagedObjectError: missing, or not what was written.
        StorageError: it names files outside its folder.
    """
    place = f"{store.uri}/{name}/{MANIFEST}"
    content = store.read(f"{name}/{MANIFEST}")
    if content is None:
        raise DamagedObjectError(f"{place}: missing since it was written; use an earlier checkpoint")
    try:
        manifest = CheckpointManifest.model_validate_json(content.data)
    except ValidationError as error:
        raise DamagedObjectError(f"{place}: not a manifest; use an earlier checkpoint") from error
    # The manifest hashes itself: nothing else could tell a changed hash from a changed file.
    if manifest.sealed() != manifest:
        raise DamagedObjectError(f"{place}: changed since it was written; use an earlier checkpoint")
    for file in manifest.sha256:
        # A manifest is data: a name such as ../../x would write outside of the folder when it is fetched.
        check_key(file)
    return manifest


def fetch(
    store: ObjectStore,
    name: str,
    manifest: CheckpointManifest,
    *,
    folder: Path,
    starting_with: tuple[str, ...] = ("",),
    logs: tuple[str, ...] = (),
) -> Found:
    """A checkpoint's verified files: in place where the store is local, else below `folder`.

    Args:
        store: where it is.
        name: the checkpoint.
        manifest: its manifest.
        folder: where fetched files go.
        starting_with: fetch only files whose path starts so.
        logs: kinds of rows of which the log is fetched too.

    Raises:
        DamagedObjectError: a file is missing or changed; names it.
    """
    for file, sha256 in manifest.sha256.items():
        if file.startswith(starting_with):
            fetch_file(store, f"{name}/{file}", sha256, folder=folder)
    found = {kind: _fetch_log(store, name, manifest, kind, folder=folder) for kind in logs}
    in_place = store.path_of(f"{name}/{MANIFEST}")
    return Found(name, folder / name if in_place is None else in_place.parent, manifest, found)


def _fetch_log(
    store: ObjectStore, name: str, manifest: CheckpointManifest, kind: str, *, folder: Path
) -> list[Path]:
    if manifest.log is not None:
        return fetch_log(store, manifest.log, kind, folder=folder)
    if kind not in manifest.sha256:
        return []
    return [fetch_file(store, f"{name}/{kind}", manifest.sha256[kind], folder=folder)]
