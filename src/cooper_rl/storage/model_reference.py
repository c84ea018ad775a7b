"""A model from one task to the next: its folder, or a small reference to the object store.

    <folder>/model.json                      address with the hash of SHA256SUMS
    <storage.uri>/_models/<hash>/            the files, and SHA256SUMS, which is written last

Kubeflow would store a folder for each task that writes it, and fetch it into each that reads it. The place is
named by its content, so that the same model is stored once; the name of a run cannot begin with `_`.
"""

import hashlib
import logging
from contextlib import suppress
from pathlib import Path

from cooper_rl.config.infrastructure import StorageConfig, is_stored
from cooper_rl.errors import DataError, WriteConflictError
from cooper_rl.records.files import read_report, write_report
from cooper_rl.schema.data import Record
from cooper_rl.storage.base import content_sha256, file_sha256
from cooper_rl.storage.models import PIN, SUMS, read_sums
from cooper_rl.storage.open import open_store

logger = logging.getLogger(__name__)

REFERENCE = "model.json"
PLACE = "_models"


class ModelReference(Record):
    """Where a model is."""

    model: str
    """Address in an object store, with the hash of its SHA256SUMS."""


def hand_over(config: StorageConfig, folder: Path) -> None:
    """Where runs keep checkpoints in an object store, move a model there and leave a reference in its folder.

    Doing it again sends nothing again.

    Raises:
        DataError: the folder cannot be changed.
        StorageError: the store cannot be used, or the folder holds no model.
    """
    if config.uri is None or not is_stored(config.uri):
        return
    files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    files = [name for name in files if name not in {SUMS, REFERENCE}]
    sums = sums_of(folder, files)
    read_sums(sums, place=str(folder))
    sha256 = hashlib.sha256(sums).hexdigest()
    store = open_store(config, f"{config.uri.rstrip('/')}/{PLACE}/{sha256}")
    if store.read(SUMS) is None:
        for name in files:
            store.put_file(name, folder / name, sha256=content_sha256(folder / name))
        with suppress(WriteConflictError):  # another task with the same model, whose list is the same
            store.write(SUMS, sums, replaces=None)
    try:
        write_report(folder / REFERENCE, ModelReference(model=f"{store.uri}{PIN}{sha256}"))
        for name in files:
            (folder / name).unlink()
    except OSError as error:
        raise DataError(f"{folder}: cannot be changed ({error}); give a folder that can be") from error
    logger.info("handed over %s as %s", folder, store.uri)


def sums_of(folder: Path, files: list[str]) -> bytes:
    """SHA256SUMS of some files of a folder, as `sha256sum` writes it."""
    return "".join(f"{file_sha256(folder / name)}  {name}\n" for name in files).encode()


def model_in(folder: Path) -> str:
    """What `at_hand` takes for a folder: its path, or the address that the reference in it leads to.

    Raises:
        DataError: the reference is not readable.
    """
    if (folder / REFERENCE).is_file():
        return read_report(folder / REFERENCE, ModelReference).model
    return str(folder)
