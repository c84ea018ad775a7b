"""A model from one task to the next: its folder, or a small reference to the object store.

    <folder>/model.json                      address with the hash of SHA256SUMS
    <storage.uri>/_models/<hash>/            the files, and SHA256SUMS, which is written last

Kubeflow would store a folder for each task that writes it, and fetch it into each that reads it. The place is
named by its content, so that the same model is stored once; the name of a run cannot begin with `_`.
"""

import hashlib
import logging
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from cooper_rl.config.infrastructure import StorageConfig, is_stored
from cooper_rl.errors import DataError, WriteConflictError
from cooper_rl.machine.scratch import scratch_folder
from cooper_rl.records.files import read_report, write_report
from cooper_rl.records.written import MARKER, check_own, check_replaceable, file_sha256
from cooper_rl.schema.data import Record
from cooper_rl.storage.base import content_sha256, files_below
from cooper_rl.storage.models import PIN, SUMS, read_sums
from cooper_rl.storage.open import open_store

logger = logging.getLogger(__name__)

REFERENCE = "model.json"
PLACE = "_models"


class ModelReference(Record):
    """The place of a model."""

    model: str
    """Address in an object store, with the hash of its SHA256SUMS."""


@contextmanager
def handed_over(config: StorageConfig, folder: Path) -> Generator[Path]:
    """The folder in which a task writes its model: its own, or one whose files go to the store when the block
    ends well.

    The second is so where runs keep checkpoints in an object store; the folder then gets a reference. The
    same model is sent once.

    Raises:
        DataError: the folder cannot be written, or holds files of others that would be replaced.
        StorageError: the store cannot be used, or no model was written.
    """
    check_own(folder / REFERENCE, ModelReference)
    if config.uri is None or not is_stored(config.uri):
        check_replaceable(folder, besides=REFERENCE)
        (folder / REFERENCE).unlink(missing_ok=True)  # of an earlier run, which would hide the model
        yield folder
        return
    with scratch_folder() as scratch:
        place = scratch / folder.name  # which a model's card may name: a random name would be content
        place.mkdir()
        yield place
        model = _send(config, config.uri, place)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{folder}: cannot be made a folder ({error}); choose another path") from error
    write_report(folder / REFERENCE, ModelReference(model=model))
    logger.info("the model of %s is in %s", folder, model)


def _send(config: StorageConfig, uri: str, folder: Path) -> str:
    """Store a folder under its content's name; returns its address with the hash."""
    files = [name for name in files_below(folder) if name != MARKER]
    sums = sums_of(folder, files)
    # Only to refuse what could not be fetched again: no weights, or a file that may run code.
    read_sums(sums, place=str(folder))
    sha256 = hashlib.sha256(sums).hexdigest()
    store = open_store(config, f"{uri.rstrip('/')}/{PLACE}/{sha256}")
    if store.read(SUMS) is None:
        for name in files:
            store.put_file(name, folder / name, sha256=content_sha256(folder / name))
        # The list is written last: where it is, all files are.
        with suppress(WriteConflictError):  # another task with the same model, whose list is the same
            store.write(SUMS, sums, replaces=None)
    return f"{store.uri}{PIN}{sha256}"


def sums_of(folder: Path, files: list[str]) -> bytes:
    """SHA256SUMS of some files of a folder, as `sha256sum` writes it."""
    return "".join(f"{file_sha256(folder / name)}  {name}\n" for name in files).encode()


def model_in(folder: Path) -> str:
    """The argument of `at_hand` for a folder: its path, or the address that the reference in it leads to.

    Raises:
        DataError: the reference is not readable.
    """
    if (folder / REFERENCE).is_file():
        return read_report(folder / REFERENCE, ModelReference).model
    return str(folder)
