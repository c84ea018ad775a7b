"""A model from the object store: a Hugging Face folder below one address, with a `SHA256SUMS` beside its
files, as `sha256sum *` writes it. A file that is damaged or was exchanged is not used; files that could run
code when they are loaded are refused.

`python -m cooper_rl.storage.models` brings one into a folder before a server starts; stages ask for a folder
by `at_hand`. Whoever keeps the store puts models into it.
"""

import argparse
import hashlib
import logging
import os
import re
import shutil
import sys
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from cooper_rl.config.infrastructure import StorageConfig, is_stored
from cooper_rl.errors import (
    EXIT_INTERRUPTED,
    EXIT_USER_ERROR,
    ConfigError,
    CooperError,
    DamagedObjectError,
    StorageError,
)
from cooper_rl.machine.drafts import flush
from cooper_rl.machine.scratch import scratch_folder
from cooper_rl.progress import show_log
from cooper_rl.storage.base import ObjectStore, check_key
from cooper_rl.storage.local import locked
from cooper_rl.storage.open import open_store

logger = logging.getLogger(__name__)

SUMS = "SHA256SUMS"
PIN = "#sha256="
WEIGHTS = ".safetensors"
ALLOWED = frozenset({WEIGHTS, ".json", ".jsonl", ".txt", ".jinja", ".model", ".md", ""})
"""Weights, configuration, tokenizers, labelled completions. `.bin`, `.pt` and `.pkl` would be unpickled, and
`.py` imported."""


class StoredModel(NamedTuple):
    """A model as its SHA256SUMS describes it."""

    store: ObjectStore
    files: dict[str, str]
    """Name -> sha256."""
    sha256: str
    """Hash of SHA256SUMS."""

    @property
    def pinned(self) -> str:
        """Its address with the hash, by which no other model is found later."""
        return f"{self.store.uri}{PIN}{self.sha256}"

    def fetch(self, folder: Path) -> None:
        """Bring the files into a folder, each verified.

        Raises:
            StorageError: the store or the folder cannot be used.
            DamagedObjectError: a file is missing or is not what the list says.
        """
        self._fetch(folder, self.files)

    @contextmanager
    def without_weights(self) -> Generator[Path]:
        """A folder with configuration and tokenizer, while the block runs; raises as `fetch` does."""
        with scratch_folder() as folder:
            self._fetch(folder, [name for name in self.files if not name.endswith(WEIGHTS)])
            yield folder

    def _fetch(self, folder: Path, names: Iterable[str]) -> None:
        for name in names:
            try:
                self.store.get_file(name, folder / name, sha256=self.files[name])
            except DamagedObjectError as error:
                place = f"{self.store.uri}/{name}"
                raise DamagedObjectError(
                    f"{place}: missing, or not what {SUMS} says; upload the model again"
                ) from error
            logger.info("fetched %s", name)


def find_model(config: StorageConfig, name: str) -> StoredModel:
    """Read the list beside a model; `name` may end in `#sha256=` and the hash of that list.

    Raises:
        StorageError: the store cannot be used, or the list is missing, malformed, not the one of the name,
            or holds a file that may run code.
    """
    uri, _, pin = name.partition(PIN)
    store = open_store(config, uri)
    sums = store.read(SUMS)
    if sums is None:
        raise StorageError(f"{uri}/{SUMS}: missing; write it beside the model: sha256sum * > {SUMS}")
    sha256 = hashlib.sha256(sums.data).hexdigest()
    if pin and pin != sha256:
        raise StorageError(
            f"{uri}/{SUMS}: has the sha256 {sha256} and not {pin}: the model was exchanged since; put the "
            f"old one back, or start another run with {uri}{PIN}{sha256}"
        )
    return StoredModel(store, read_sums(sums.data, place=f"{uri}/{SUMS}"), sha256)


def at_hand(config: StorageConfig, name: str) -> str:
    """The argument of `from_pretrained`: a stored model's folder on this machine, else the name as it is.

    Fetched once for all processes and runs of a machine, below `~/.cache/cooper-rl` or `$XDG_CACHE_HOME`.

    Raises:
        ConfigError: there is no home folder, and no other is named.
        StorageError, DamagedObjectError: see `find_model` and `StoredModel.fetch`.
    """
    if not is_stored(name):
        return name
    cache = _cache()
    model = find_model(config, name)
    folder = cache / model.sha256
    # Held for the whole transfer: the machine's other processes wait for these files and fetch none.
    with locked(cache):
        if not folder.is_dir():
            # A fixed name: under the lock, what is there was left by a process that was killed.
            draft = folder.with_name(f"{folder.name}.partial")
            shutil.rmtree(draft, ignore_errors=True)
            try:
                model.fetch(draft)
                # What has this name is trusted from now on, and verified by nobody.
                for path in (*draft.rglob("*"), draft):
                    flush(path)
                draft.rename(folder)
            except OSError as error:
                raise StorageError(f"{folder}: cannot be written ({error}); free space there") from error
            finally:
                shutil.rmtree(draft, ignore_errors=True)
    return str(folder)


def _cache() -> Path:
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cooper-rl" / "models"
    except RuntimeError as error:
        raise ConfigError(
            f"user {os.getuid()} has no home folder to keep models in: set HOME or XDG_CACHE_HOME to one "
            "that can be written"
        ) from error


def read_sums(data: bytes, *, place: str) -> dict[str, str]:
    """Names and hashes of a file as `sha256sum` writes it.

    Raises:
        StorageError: naming the place and line of what is malformed or not allowed.
    """
    files: dict[str, str] = {}
    for number, line in enumerate(data.decode("utf-8", errors="replace").splitlines(), start=1):
        found = re.fullmatch(r"([0-9a-f]{64}) [ *](?:\./)?(\S+)", line)
        if found is None:
            raise StorageError(f"{place}, line {number}: {line[:80]!r} is not a hash and a name of sha256sum")
        sha256, name = found.groups()
        if PurePosixPath(check_key(name)).suffix not in ALLOWED:
            raise StorageError(
                f"{place}, line {number}: {name!r} may run code when it is loaded; keep safetensors, JSON "
                "and tokenizer files only"
            )
        if name != SUMS:  # which `sha256sum *` found as it was before
            files[name] = sha256
    if "config.json" not in files:
        raise StorageError(f"{place}: names no config.json, so this is no model; make the list in its folder")
    if not any(name.endswith(WEIGHTS) for name in files):
        raise StorageError(f"{place}: names no weights; make the list in a folder with {WEIGHTS} files")
    return files


def _check_others(folder: Path, files: Iterable[str]) -> None:
    """Refuse a folder with weights that are not this model's: loaders would take them for its own.

    A pod's folder outlives a restart of its containers, in which another model may stand at the address.
    """
    if others := sorted({path.name for path in folder.glob(f"*{WEIGHTS}*")} - set(files)):
        raise StorageError(
            f"{folder / others[0]}: is no file of this model; empty the folder (in a cluster, delete the pod)"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0, or 2 with one line of error."""
    options = build_parser().parse_args(arguments)
    show_log()
    try:
        config = StorageConfig(
            endpoint=options.endpoint, credentials=options.credentials, ca_bundle=options.ca_bundle
        )
        model = find_model(config, options.uri)
        _check_others(options.folder, model.files)
        model.fetch(options.folder)
    except CooperError as error:
        sys.stderr.write(f"fetch_model: {error}\n")
        return EXIT_USER_ERROR
    except KeyboardInterrupt:
        sys.stderr.write("\nfetch_model: interrupted; start again with the same arguments\n")
        return EXIT_INTERRUPTED
    return 0


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m cooper_rl.storage.models",
        description="Bring a model from an object store into a folder, verified.",
    )
    parser.add_argument("--uri", required=True, help="s3://bucket/prefix of the model, or a folder")
    parser.add_argument("--folder", type=Path, required=True, help="where it goes")
    parser.add_argument("--endpoint", help="https://host:port of the S3 server")
    parser.add_argument("--credentials", type=Path, help="folder with the files access_key and secret_key")
    parser.add_argument("--ca-bundle", type=Path, help="PEM file of the authorities to trust")
    return parser


if __name__ == "__main__":
    sys.exit(main())
