"""`python -m cooper_rl.backends.fetch_model`: a model from the store into a folder, before a server starts.

A model is a Hugging Face folder below one address, with a `SHA256SUMS` beside its files, as `sha256sum *`
writes it. A file that is damaged or was exchanged is not served; files that could run code when they are
loaded are refused. Deliberately left out: serving, and how the model came to the store.
"""

import argparse
import logging
import re
import sys
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from cooper_rl.backends.open_store import open_store
from cooper_rl.backends.storage import check_key
from cooper_rl.config.infrastructure import StorageConfig
from cooper_rl.errors import CooperError, StorageError

logger = logging.getLogger(__name__)

SUMS = "SHA256SUMS"
ALLOWED = frozenset({".safetensors", ".json", ".txt", ".jinja", ".model", ".md", ""})
"""Weights, configuration, tokenizers. Not `.bin`, `.pt` or `.pkl`, which are unpickled, nor `.py`."""
EXIT_USER_ERROR = 2


def fetch_model(config: StorageConfig, uri: str, folder: Path) -> list[str]:
    """Fetch every file that SHA256SUMS names, each verified; returns their names.

    Raises:
        StorageError: the store cannot be used, the list is missing or malformed, or a file may run code.
        DamagedObjectError: a file is missing or is not what the list says.
    """
    store = open_store(config, uri)
    sums = store.read(SUMS)
    if sums is None:
        raise StorageError(f"{uri}/{SUMS}: missing; write it beside the model: sha256sum * > {SUMS}")
    files = read_sums(sums.data, place=f"{uri}/{SUMS}")
    for name, sha256 in files.items():
        store.get_file(name, folder / name, sha256=sha256)
        logger.info("fetched %s", name)
    return list(files)


def read_sums(data: bytes, *, place: str) -> dict[str, str]:
    """Names and hashes of a file as `sha256sum` writes it.

    Raises:
        StorageError: naming the place and line of what is malformed or not allowed.
    """
    files: dict[str, str] = {}
    for number, line in enumerate(data.decode("utf-8", errors="replace").splitlines(), start=1):
        found = re.fullmatch(r"([0-9a-f]{64}) [ *](\S+)", line)
        if found is None:
            raise StorageError(f"{place}, line {number}: {line[:80]!r} is not a hash and a name of sha256sum")
        sha256, name = found.groups()
        if PurePosixPath(check_key(name)).suffix not in ALLOWED:
            raise StorageError(
                f"{place}, line {number}: {name!r} may run code when it is loaded; keep safetensors, JSON "
                "and tokenizer files only"
            )
        files[name] = sha256
    if "config.json" not in files:
        raise StorageError(f"{place}: names no config.json, so this is no model; make the list in its folder")
    return files


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0, or 2 with one line of error."""
    options = _build_parser().parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    try:
        config = StorageConfig(
            endpoint=options.endpoint, credentials=options.credentials, ca_bundle=options.ca_bundle
        )
        fetch_model(config, options.uri, options.folder)
    except CooperError as error:
        sys.stderr.write(f"fetch_model: {error}\n")
        return EXIT_USER_ERROR
    return 0


def _build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m cooper_rl.backends.fetch_model", description=__doc__)
    parser.add_argument("--uri", required=True, help="s3://bucket/prefix of the model, or a folder")
    parser.add_argument("--folder", type=Path, required=True, help="where it goes")
    parser.add_argument("--endpoint", help="https://host:port of the S3 server")
    parser.add_argument("--credentials", type=Path, help="folder with the files access_key and secret_key")
    parser.add_argument("--ca-bundle", type=Path, help="PEM file of the authorities to trust")
    return parser


if __name__ == "__main__":
    sys.exit(main())
