"""Checkpoints from one task to the next (row 13): the folder itself, or a small reference to a store.

    <checkpoint>/reference.json      address, name, step, checksum of the manifest
    <checkpoint>/LATEST              as in a whole checkpoint folder
    <checkpoint>/step-000020/        manifest.json metrics.jsonl pairs.jsonl rollouts.jsonl: what reports read

The next task fetches what it needs and verifies it. A reference never holds credentials or an endpoint:
those come from the task's own configuration.
"""

import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from cooper_rl.checkpoints.manifest import (
    LATEST,
    MANIFEST,
    NAME,
    SMALL_FILES,
    CheckpointManifest,
    dump_manifest,
)
from cooper_rl.checkpoints.store import Found, fetch, read_manifest, remove_folder
from cooper_rl.checkpoints.writer import STAGING
from cooper_rl.config.infrastructure import StorageConfig
from cooper_rl.errors import ConfigError, DamagedObjectError, DataError, StorageError
from cooper_rl.machine.scratch import scratch_folder
from cooper_rl.records.files import read_report, write_report
from cooper_rl.schema.data import Record
from cooper_rl.storage.base import ObjectStore, check_key
from cooper_rl.storage.open import open_store

REFERENCE = "reference.json"


class CheckpointReference(Record):
    """Where a checkpoint is."""

    uri: str
    """Of the run's checkpoints."""
    name: str
    step: int
    checksum: str
    """Of the manifest, which holds the hash of every file."""


def check_reference_folder(folder: Path) -> None:
    """Refuse a folder in which a reference would replace what is none.

    Raises:
        ConfigError: it holds other files, or checkpoints themselves; names one.
    """
    held = sorted(folder.iterdir()) if folder.is_dir() else []
    others = [path.name for path in held if not _is_replaceable(path)]
    if others:
        raise ConfigError(
            f"--checkpoint {folder}: holds {others[0]!r}, which the reference to the checkpoint in "
            "storage.uri would replace; give a folder of its own"
        )


def _is_replaceable(path: Path) -> bool:
    """A part of a reference, or what a killed run left."""
    if NAME.fullmatch(path.name) and path.is_dir():
        return {file.name for file in path.iterdir()} <= {*SMALL_FILES, MANIFEST}
    return path.name in {REFERENCE, LATEST} or path.name.startswith(STAGING)


def write_reference(folder: Path, found: Found, *, uri: str) -> None:
    """Turn a task's checkpoint folder into a reference to a checkpoint in a store.

    Raises:
        DataError: the disk refuses.
    """
    try:
        remove_folder(folder)
        (folder / found.name).mkdir(parents=True)
        for file in SMALL_FILES:
            shutil.copyfile(found.folder / file, folder / found.name / file)
        (folder / found.name / MANIFEST).write_bytes(dump_manifest(found.manifest))
        (folder / LATEST).write_text(found.name + "\n", encoding="utf-8")
    except OSError as error:
        raise DataError(f"{folder}: cannot be written ({error}); free space there") from error
    manifest = found.manifest
    reference = CheckpointReference(uri=uri, name=found.name, step=manifest.step, checksum=manifest.checksum)
    write_report(folder / REFERENCE, reference)


@contextmanager
def open_checkpoint(
    folder: Path, config: StorageConfig, *, starting_with: tuple[str, ...] = ("",)
) -> Generator[Found]:
    """The checkpoint of a folder or of the reference in it; fetched files are removed after the block.

    Args:
        folder: what train_cooper wrote.
        config: the store that a reference may lead to.
        starting_with: only files whose path starts so are fetched and verified.

    Raises:
        DataError: there is none.
        DamagedObjectError: a file is missing or changed; names it.
        StorageError: the store cannot be used, or is not the configured one.
    """
    with scratch_folder() as fetched:
        if (folder / REFERENCE).is_file():
            reference = read_report(folder / REFERENCE, CheckpointReference)
            store = _open_configured(reference, config, place=folder / REFERENCE)
            manifest = read_manifest(store, check_key(reference.name))
            if manifest.checksum != reference.checksum:
                raise DamagedObjectError(
                    f"{reference.uri}/{reference.name}/{MANIFEST}: is not the one that {folder / REFERENCE} "
                    "was written for; run the stage that wrote it again"
                )
            name = reference.name
        else:
            store = open_store(StorageConfig(), folder)
            name, manifest = _latest(store, folder)
        path = fetch(store, name, manifest, folder=fetched, starting_with=starting_with)
        yield Found(name, path, manifest)


def _open_configured(reference: CheckpointReference, config: StorageConfig, *, place: Path) -> ObjectStore:
    allowed = config.uri.rstrip("/") + "/" if config.uri else None
    if allowed is None or not reference.uri.startswith(allowed) or ".." in reference.uri:
        raise StorageError(
            f"{place}: leads to {reference.uri}, which is not below storage.uri; set storage.uri as in the "
            "task that wrote it"
        )
    return open_store(config, reference.uri)


def _latest(store: ObjectStore, folder: Path) -> tuple[str, CheckpointManifest]:
    pointer = store.read(LATEST)
    if pointer is None:
        raise DataError(f"{folder}: holds no checkpoint (no {LATEST} file); give a folder of train-cooper")
    name = pointer.name
    try:
        check_key(name)
    except StorageError as error:
        raise DataError(
            f"{folder}: its {LATEST} file names {name[:100]!r}, which is no checkpoint; write the name of "
            "one of its folders there"
        ) from error
    return name, read_manifest(store, name)
