"""Checkpoints from one task to the next (row 13): the folder itself, or a small reference to a store.

    <checkpoint>/reference.json      address, name, step, checksum of the manifest
    <checkpoint>/LATEST              as in a whole checkpoint folder
    <checkpoint>/step-000020/        manifest.json, and metrics.jsonl of all steps: what reports read

The next task fetches what it needs and verifies it. Pairs and rollouts stay in the store. A reference never
holds credentials or an endpoint: those come from the task's own configuration.
"""

import logging
import shutil
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from cooper_rl.checkpoints.logs import KINDS, METRICS
from cooper_rl.checkpoints.manifest import LATEST, MANIFEST, NAME, CheckpointManifest, dump_manifest
from cooper_rl.checkpoints.ownership import STAGING
from cooper_rl.checkpoints.reading import Found, fetch, read_manifest
from cooper_rl.checkpoints.search import check_certain, check_one_run, in_order, read_manifests
from cooper_rl.config.infrastructure import StorageConfig
from cooper_rl.errors import ConfigError, DamagedObjectError, DataError, StorageError
from cooper_rl.machine.drafts import settle_drafts
from cooper_rl.machine.scratch import scratch_folder
from cooper_rl.records.files import read_report, write_report
from cooper_rl.schema.data import Record
from cooper_rl.storage.base import ObjectStore, check_key
from cooper_rl.storage.open import open_store

logger = logging.getLogger(__name__)

REFERENCE = "reference.json"


class CheckpointReference(Record):
    """The place of a checkpoint."""

    uri: str
    """Address of the run's checkpoints."""
    name: str
    step: int
    checksum: str
    """Hash of the manifest, which holds the hash of every file."""


def check_reference_folder(folder: Path) -> None:
    """Refuse a folder that holds anything but an earlier reference, or what killed runs left.

    Raises:
        ConfigError: it holds other files, or checkpoints themselves; names one.
    """
    settle_drafts(folder)  # of a reference that was being written when its process was killed
    held = sorted(folder.iterdir()) if folder.is_dir() else []
    own = {folder / file.partition("/")[0] for file in _reference_files(folder)}
    others = [path.name for path in held if path not in own and not path.name.startswith(STAGING)]
    others += [path.name for path in own if path.is_dir() and not _is_small(path)]
    if others:
        raise ConfigError(
            f"--checkpoint {folder}: holds {others[0]!r}, which is no part of a reference to a checkpoint in "
            "storage.uri; give a folder of its own"
        )


def _is_small(path: Path) -> bool:
    return {file.name for file in path.iterdir()} <= {*KINDS, MANIFEST}


def _reference_files(folder: Path) -> list[str]:
    """Relative paths of the reference that a folder holds; none without a `reference.json`, written first."""
    try:
        reference = read_report(folder / REFERENCE, CheckpointReference)
    except DataError:
        return []
    # Earlier versions copied every kind of row.
    small = [f"{reference.name}/{file}" for file in (*KINDS, MANIFEST)]
    return [*small, LATEST, REFERENCE] if NAME.fullmatch(reference.name) else [REFERENCE]


def write_reference(folder: Path, found: Found, *, uri: str) -> None:
    """Turn a task's checkpoint folder into a reference to a checkpoint in a store.

    It takes the place of an earlier reference. Whatever else the folder holds by now stays.

    Raises:
        DataError: the disk refuses.
    """
    manifest = found.manifest
    reference = CheckpointReference(uri=uri, name=found.name, step=manifest.step, checksum=manifest.checksum)
    try:
        # `reference.json` comes last: while it is there, an interrupted removal can be told to be ours.
        for file in _reference_files(folder):
            (folder / file).unlink(missing_ok=True)
            with suppress(OSError):  # not empty: somebody else's files
                if "/" in file:
                    (folder / file).parent.rmdir()
        # Before the files that it names, which `check_reference_folder` takes for somebody else's without it.
        write_report(folder / REFERENCE, reference)
        (folder / found.name).mkdir(parents=True, exist_ok=True)
        with (folder / found.name / METRICS).open("wb") as rows:
            for path in found.log[METRICS]:
                with path.open("rb") as piece:
                    shutil.copyfileobj(piece, rows)
        (folder / found.name / MANIFEST).write_bytes(dump_manifest(found.manifest))
        (folder / LATEST).write_text(found.name + "\n", encoding="utf-8")
    except OSError as error:
        raise DataError(f"{folder}: cannot be written ({error}); free space there") from error


@contextmanager
def open_checkpoint(
    folder: Path,
    config: StorageConfig,
    *,
    starting_with: tuple[str, ...] = ("",),
    logs: tuple[str, ...] = (),
) -> Generator[Found]:
    """The checkpoint of a folder or of the reference in it; fetched files are removed after the block.

    Args:
        folder: what train_cooper wrote.
        config: the store that a reference may lead to.
        starting_with: only files whose path starts so are fetched and verified.
        logs: kinds of rows of which the log is fetched and verified.

    Raises:
        ConfigError: LATEST is missing, and it is uncertain which checkpoint it named.
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
        yield fetch(store, name, manifest, folder=fetched, starting_with=starting_with, logs=logs)


def newest_folder(checkpoint: Path) -> Path:
    """The folder of a checkpoint's files on this machine, by the rule of `open_checkpoint`.

    Args:
        checkpoint: What train_cooper wrote, or one of the checkpoints in it.

    Raises:
        ConfigError: LATEST is missing, and it is uncertain which checkpoint it named.
        DataError: there is none.
        DamagedObjectError: a manifest is damaged.
    """
    if (checkpoint / REFERENCE).is_file():
        return checkpoint / check_key(read_report(checkpoint / REFERENCE, CheckpointReference).name)
    store = open_store(StorageConfig(), checkpoint)
    pointer = store.read(LATEST)
    if pointer is None and any((checkpoint / file).is_file() for file in (MANIFEST, METRICS)):
        return checkpoint
    return checkpoint / _latest(store, checkpoint)[0]


def _open_configured(reference: CheckpointReference, config: StorageConfig, *, place: Path) -> ObjectStore:
    # The task's own credentials read what the address leads to, and another task wrote the address.
    if config.uri is None or not _is_below(reference.uri, config.uri, config):
        raise StorageError(
            f"{place}: leads to {reference.uri}, which is not below storage.uri; set storage.uri as in the "
            "task that wrote it"
        )
    return open_store(config, reference.uri)


def _is_below(address: str, place: str, config: StorageConfig) -> bool:
    # As a store writes its own address: `./store` and `store//` are `store`.
    start = open_store(config, f"{place.rstrip('/')}/x").uri.removesuffix("x")
    parts = address.removeprefix(start).split("/")
    return address.startswith(start) and not {"", ".", ".."} & set(parts)


def _latest(store: ObjectStore, folder: Path) -> tuple[str, CheckpointManifest]:
    """The checkpoint that training would continue from: what LATEST names, or what builds on it."""
    pointer = store.read(LATEST)
    if pointer is None:
        return _newest(store, folder)
    name = pointer.name
    try:
        check_key(name)
    except StorageError as error:
        raise DataError(
            f"{folder}: its {LATEST} file names {name[:100]!r}, which is no checkpoint; write the name of "
            "one of its folders there"
        ) from error
    manifests = read_manifests(store) | {name: read_manifest(store, name)}
    best = in_order(manifests, name)[0]
    return best, manifests[best]


def _newest(store: ObjectStore, folder: Path) -> tuple[str, CheckpointManifest]:
    """The newest checkpoint by the manifests, where they leave no doubt; used without LATEST."""
    manifests = read_manifests(store)
    if not manifests:
        raise DataError(f"{folder}: holds no checkpoint (no {LATEST} file); give a folder of train-cooper")
    check_one_run(manifests, place=str(folder))
    check_certain(manifests, place=str(folder))
    name = in_order(manifests, None)[0]
    logger.warning("%s: %s is missing; reading %s", folder, LATEST, name)
    return name, manifests[name]
