"""A checkpoint's manifest and files, verified (row 13)."""

from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from cooper_rl.checkpoints.manifest import MANIFEST, CheckpointManifest
from cooper_rl.errors import DamagedObjectError
from cooper_rl.storage.base import ObjectStore, check_key, is_unharmed


class Found(NamedTuple):
    """A complete, verified checkpoint on this machine."""

    name: str
    folder: Path
    manifest: CheckpointManifest


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
    if manifest.sealed() != manifest:
        raise DamagedObjectError(f"{place}: changed since it was written; use an earlier checkpoint")
    for file in manifest.sha256:
        check_key(file)
    return manifest


def fetch(
    store: ObjectStore,
    name: str,
    manifest: CheckpointManifest,
    *,
    folder: Path,
    starting_with: tuple[str, ...] = ("",),
) -> Path:
    """A checkpoint's verified files: in place where the store is local, else below `folder`.

    Args:
        store: where it is.
        name: the checkpoint.
        manifest: its manifest.
        folder: where fetched files go.
        starting_with: fetch only files whose path starts so.

    Raises:
        DamagedObjectError: a file is missing or changed; names it.
    """
    for file, sha256 in manifest.sha256.items():
        if not file.startswith(starting_with):
            continue
        in_place = store.path_of(f"{name}/{file}")
        if in_place is None:
            store.get_file(f"{name}/{file}", folder / name / file, sha256=sha256)
        elif not in_place.is_file():
            raise DamagedObjectError(f"{in_place}: missing since it was written; use an earlier checkpoint")
        elif not is_unharmed(in_place, sha256):
            raise DamagedObjectError(f"{in_place}: changed since it was written; use an earlier checkpoint")
    in_place = store.path_of(f"{name}/{MANIFEST}")
    return folder / name if in_place is None else in_place.parent
