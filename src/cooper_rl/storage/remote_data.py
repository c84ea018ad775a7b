"""Problems from elsewhere: a file behind an http(s) URL or in an object store, a data set of the hub (row 1).

The only file of `collect_problems` that touches the network. Downloads are streamed into a file, limited in
size and time. `records/layouts.py` reads the rows. There are no archives, keys or retries.
"""

import json
import logging
import re
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import httpx

from cooper_rl.addresses import redact, redact_all
from cooper_rl.config.infrastructure import StorageConfig
from cooper_rl.errors import DataError, WriteConflictError, how_to_install
from cooper_rl.outgoing import describe, hub_obstacle, open_client, through, unpack
from cooper_rl.progress import Progress
from cooper_rl.records.files import SUFFIXES, RawRow
from cooper_rl.schema.texts import in_one_line, printable
from cooper_rl.waiting import Waiting

logger = logging.getLogger(__name__)

MAX_DOWNLOAD_BYTES = 2_000_000_000
MAX_DOWNLOAD_SECONDS = 3600.0
SILENCE_SECONDS = 60.0
"""Seconds that a server may send nothing."""

_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+(:[^:/\s]+){0,2}")


class HubId(NamedTuple):
    """`name[:config][:split]`; the split is `train` when it is left out."""

    name: str
    config: str | None
    split: str


def download(
    url: str,
    folder: Path,
    *,
    max_bytes: int = MAX_DOWNLOAD_BYTES,
    max_seconds: float = MAX_DOWNLOAD_SECONDS,
    silence_seconds: float = SILENCE_SECONDS,
) -> Path:
    """Stream a .jsonl or .parquet file into `folder`; returns its path, named as in the URL.

    Raises:
        DataError: unreachable, refused, a web page instead of a file, too large, too slow.
    """
    waiting = Waiting(redact(url), logger, limit=f"{silence_seconds:g} s of silence end it")
    try:
        name = Path(unquote(urlsplit(url).path)).name
        target = folder / (name if name.lower().endswith(SUFFIXES) else f"{name or 'download'}.jsonl")
        with (
            waiting.asked(),
            open_client(silence_seconds, follow_redirects=True) as client,
            client.stream("GET", url) as response,
        ):
            response.raise_for_status()
            _check_kind(response, url)
            deadline = time.monotonic() + max_seconds
            _write_body(response, target, max_bytes=max_bytes, deadline=deadline, waiting=waiting)
    except httpx.HTTPStatusError as error:
        status, reason = error.response.status_code, printable(error.response.reason_phrase)
        raise DataError(
            f"{redact(url)}: the server answered {status} {reason}{through(url)}; "
            "check the address and whether it needs a login, or download the file and give its path"
        ) from error
    except OSError as error:
        raise _explain_disk(redact(url), folder, error) from error
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        raise DataError(
            f"{redact(url)}: cannot be downloaded ({_reason(error, url)}); check the address and the "
            "network, or download the file elsewhere and give its path"
        ) from error
    return target


def fetch_object(
    config: StorageConfig, uri: str, folder: Path, *, max_bytes: int = MAX_DOWNLOAD_BYTES
) -> Path:
    """Stream a .jsonl or .parquet file of an object store into `folder`; returns its path.

    Raises:
        DataError: the address names no such file, it is not there, is replaced meanwhile, or is too large.
        StorageError: the store cannot be used.
    """
    place, _, name = uri.rpartition("/")
    if not place.removeprefix("s3:/").strip("/") or not name.lower().endswith(SUFFIXES):
        raise DataError(f"{uri}: is no file of problems; write s3://bucket/prefix/problems.jsonl or .parquet")
    from cooper_rl.storage.s3 import S3Store  # minio is imported where it is used only

    store = S3Store(config, place)
    version = store.look_at(name)
    if version is None:
        raise DataError(f"{uri}: no such object; check bucket, prefix and name")
    _check_size(version.size, max_bytes, uri)
    try:
        store.stream(name, folder / name, version)
    except WriteConflictError as error:
        raise DataError(
            f"{uri}: was replaced while it was read; start again when nobody writes it"
        ) from error
    return folder / name


def parse_hub_id(text: str) -> HubId | None:
    """The parts of `openai/gsm8k:main:train`, or None when the text cannot be a data set id."""
    if not _HUB_ID.fullmatch(text):
        return None
    name, *rest = text.split(":")
    if len(rest) == 2:
        return HubId(name, rest[0], rest[1])
    return HubId(name, rest[0] if rest else None, "train")


def check_hub_extra(text: str) -> None:
    """Find out, without a question to the hub, whether its data sets can be read here.

    Raises:
        DataError: the extra is missing.
    """
    # Not by an import: the library keeps for good whether the hub may be asked.
    if find_spec("datasets") is None:
        raise DataError(
            f"{text}: reading from the hub needs the extra `hub`: {how_to_install('hub')}; "
            "or give the path of a downloaded .jsonl or .parquet file"
        )


def read_hub(text: str, *, away: str | None = None) -> Iterator[RawRow]:
    """Yield the rows of one split of a hub data set, in order; rows count from 1. No code of it is run.

    Args:
        text: The data set's id.
        away: Why the hub is not asked, so that the cache must have it.

    Raises:
        DataError: the extra is missing, the hub cannot be reached, or there is no such data set, config
            or split.
    """
    hub_id = parse_hub_id(text)
    if hub_id is None:
        raise DataError(f"{text!r} is no hub data set id; write owner/name:config:split")
    check_hub_extra(text)
    import datasets  # pyright: ignore[reportMissingImports] an extra
    from huggingface_hub import constants

    waiting = Waiting(f"the Hugging Face hub, for {text}", logger, limit="Ctrl-C ends it")
    try:
        with waiting.asked():
            rows: Any = datasets.load_dataset(hub_id.name, hub_id.config, split=hub_id.split)
    # What the hub's client raises depends on where it fails; all of it means "this cannot be read".
    except (OSError, ValueError, RuntimeError, httpx.HTTPError) as error:
        if (found := hub_obstacle(error)) is not None:
            raise DataError(
                f"{text}: the hub data set cannot be read: {found.reason}; {found.remedy}, or download its "
                "Parquet file and give the path"
            ) from error
        if away is not None:
            raise DataError(
                f"{text}: the hub data set cannot be read: {away}, and the cache of this machine does not "
                "have it. Download its Parquet file on another machine and give the path"
            ) from error
        reason = in_one_line(describe(error, constants.ENDPOINT))[:400]
        raise DataError(
            f"{text}: the hub data set cannot be read ({reason}); check owner/name, "
            "config and split. Without a way to the hub, download its Parquet file on another machine and "
            "give the path"
        ) from error
    for number, value in enumerate(rows, start=1):
        yield RawRow(text, number, value, json.dumps(value, default=str, ensure_ascii=False), None)


def _reason(error: Exception, url: str) -> str:
    return redact_all(describe(error, url), url)


def _explain_disk(source: str, folder: Path, error: OSError) -> DataError:
    return DataError(
        f"{source}: cannot be stored below {folder} ({error}); free space, or set TMPDIR to a larger place"
    )


def _check_kind(response: httpx.Response, url: str) -> None:
    kind = response.headers.get("content-type", "")
    if "html" in kind:
        raise DataError(
            f"{redact(url)}: is a web page ({printable(kind)}), not a data file; use the address of the raw "
            "file (on GitHub: the Raw button)"
        )


def _write_body(
    response: httpx.Response, target: Path, *, max_bytes: int, deadline: float, waiting: Waiting
) -> None:
    announced = int(response.headers.get("content-length", 0))
    _check_size(announced, max_bytes, response.url)
    progress = Progress(f"download {target.name} (bytes)", announced or None, logger)
    size = 0
    with target.open("wb") as file:
        # As they arrive, so that a trickle is noticed. Decoded bytes are counted: a small compressed answer
        # may unfold into a large one.
        for chunk in unpack(response.iter_raw(), response.headers):
            waiting.heard()
            size += len(chunk)
            _check_size(size, max_bytes, response.url)
            if time.monotonic() > deadline:
                raise DataError(
                    f"{redact(str(response.url))}: too slow, {size:,} bytes when time was up; download it "
                    "yourself and give the path"
                )
            file.write(chunk)
            progress.advance(len(chunk))


def _check_size(size: int, max_bytes: int, url: httpx.URL | str) -> None:
    if size > max_bytes:
        raise DataError(
            f"{redact(str(url))}: is larger than {max_bytes / 1e6:,.0f} MB; download it yourself, keep the "
            "part that you need, and give the path"
        )
