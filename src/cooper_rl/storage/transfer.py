"""Helpers for transfers to a store: order, files, secrets, the meaning of errors (row 13).

Only `storage/s3.py` makes requests.
"""

import hashlib
import io
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

from minio.error import InvalidResponseError, S3Error, ServerError
from urllib3 import PoolManager
from urllib3.exceptions import HTTPError, SSLError

from cooper_rl.config.infrastructure import StorageConfig
from cooper_rl.errors import DamagedObjectError, StorageError, WriteConflictError
from cooper_rl.machine.daemon_pool import DaemonPool
from cooper_rl.schema.texts import fits_header, in_one_line

T = TypeVar("T")

_CODE_OF_STATUS = {401: "AccessDenied", 403: "AccessDenied", 507: "XMinioStorageFull"}
"""Codes for an answer that names none."""

_TRANSIENT = ("ConditionalRequestConflict", "OperationAborted", "RequestTimeout", "SlowDown")
"""Refusals that the same request may not meet a little later, whatever their status."""

_REMEDIES = {
    "InvalidAccessKeyId": "the credentials are refused; check {credentials}",
    "SignatureDoesNotMatch": "the credentials are refused; check {credentials}",
    "ExpiredToken": "the credentials have expired; renew {credentials}",
    "AccessDenied": "the credentials do not allow this; check {credentials} and the bucket's policy",
    "NoSuchBucket": "the bucket does not exist; create it, or correct storage.uri",
    "AuthorizationHeaderMalformed": "the region is not the bucket's; set storage.region",
    "NoSuchUpload": "somebody else removed its parts; two runs use this run_key: stop one of them",
    "QuotaExceeded": "the quota is used up; raise it, or remove old checkpoints",
    "XMinioAdminBucketQuotaExceeded": "the quota is used up; raise it, or remove old checkpoints",
    "XMinioStorageFull": "the server's disks are full; add space, or remove old checkpoints",
    "RequestTimeTooSkewed": "this machine's clock and the server's differ too much; synchronise them (NTP)",
}


class BlockwisePool(PoolManager):
    """Sends a body block by block: a time-out is for one call of `sendall`, which else takes a whole part.

    Args:
        on_block: Called when a block was sent.
        options: Of urllib3's pool.
    """

    def __init__(self, on_block: Callable[[], None], **options: Any) -> None:
        super().__init__(**options)
        self._on_block = on_block

    def urlopen(self, method: str, url: str, redirect: bool = True, **options: Any) -> Any:
        if options.get("body"):
            options["body"] = _Body(options["body"], self._on_block)
        return super().urlopen(method, url, redirect, **options)


class _Body(io.BytesIO):
    def __init__(self, data: bytes, on_block: Callable[[], None]) -> None:
        super().__init__(data)
        self._on_block = on_block

    def read(self, size: int | None = -1, /) -> bytes:
        if self.tell():  # what was read before is sent
            self._on_block()
        return super().read(size)


def check_tag(method: str, headers: Mapping[str, str], *, config: StorageConfig) -> None:
    """Refuse the 200 of a server that is none of S3, such as MinIO's console or a page to log in.

    Raises:
        StorageError: an object was written or read, and has no ETag.
    """
    # DELETE is answered without one.
    if method in ("GET", "HEAD", "PUT") and "etag" not in headers:
        raise StorageError(
            f"{config.endpoint}: answers as no S3 server does, without an ETag; check storage.endpoint "
            "(MinIO's console has another port than its API)"
        )


def read_size(headers: Mapping[str, str], *, config: StorageConfig) -> int:
    """The bytes of an object, by the answer to HEAD.

    Raises:
        StorageError: it does not say, as of a proxy that packs what it hands on.
    """
    text = headers.get("content-length", "")
    if not (text.isascii() and text.isdecimal()):
        raise StorageError(
            f"{config.endpoint}: does not say how large an object is (Content-Length {text!r}); check "
            "storage.endpoint, and that no proxy before it changes its answers"
        )
    return int(text)


def map_in_order(function: Callable[[int], T], items: Iterable[int], num_parallel: int) -> Iterator[T]:
    """Call in parallel and yield results in order; at most `num_parallel` + 1 of them exist at a time."""
    with DaemonPool(num_parallel) as pool:
        waiting: deque[Future[T]] = deque()
        try:
            for item in items:
                # Never more than so many results exist: each may be a part of a model.
                if len(waiting) == num_parallel:
                    yield waiting.popleft().result()
                waiting.append(pool.submit(function, item))
            while waiting:
                yield waiting.popleft().result()
        finally:
            # After an error nobody takes the rest, and parts that have not begun need not be sent.
            for future in waiting:
                future.cancel()


def save_piece(blocks: Iterable[bytes], path: Path, *, start: int) -> bytes:
    """Write what arrives into its place in a file that exists; returns its sha256.

    A block is hashed and written while it is in the processor's cache: hashing what lies in memory takes half
    as much time again.

    Raises:
        StorageError: the disk is full or broken, which is no reason to ask the server again.
    """
    found = hashlib.sha256()
    try:
        # A handle per piece: pieces are written in parallel, and a shared one has a single position.
        with path.open("r+b") as file:
            file.seek(start)
            for block in blocks:
                found.update(block)
                file.write(block)
    except OSError as error:  # those of the connection are urllib3's own
        raise StorageError(f"{path}: cannot be written ({error}); free space there") from error
    return found.digest()


def read_secret(path: Path) -> str:
    """One file of a mounted secret.

    Raises:
        StorageError: unreadable or no key; the message never holds the content.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise StorageError(
            f"{path}: cannot be read ({type(error).__name__}); storage.credentials must be a folder with the "
            "files access_key and secret_key"
        ) from error
    return bare_key(text, place=str(path))


def bare_key(text: str, *, place: str) -> str:
    """A key without white space round it: what `echo` writes ends in a line break.

    Raises:
        StorageError: no key that a request can carry; the message never holds it.
    """
    key = text.strip()
    if not key:
        raise StorageError(f"{place}: is empty; write the key into it")
    if not fits_header(key):
        raise StorageError(f"{place}: holds a line break or a character outside ASCII; write the key alone")
    return key


def may_succeed_later(error: Exception) -> bool:
    """True if it makes sense to send the same request again, after a pause."""
    if _code(error) in _TRANSIENT:
        return True
    status = _status(error)
    if status is not None:
        # 501 and 507 are as final as a 4xx: an operation that the server does not know, and a full disk.
        return status in {408, 429} or (status >= 500 and status not in {501, 507})
    # A certificate that is not trusted will not be in a minute.
    return isinstance(error, HTTPError | OSError) and not isinstance(error, SSLError)


def explain_refusal(place: str, error: Exception, *, config: StorageConfig) -> StorageError:
    """The error for a request that failed for good.

    Args:
        place: address of the object.
        error: what the client raised.
        config: names the server and where the credentials come from.
    """
    code = _code(error)
    if code in {"PreconditionFailed", "ConditionalRequestConflict"}:
        return WriteConflictError(
            f"{place}: somebody else wrote it; two runs use this run_key: stop one of them"
        )
    if code == "NoSuchKey":
        return DamagedObjectError(f"{place}: missing since it was written; use an earlier checkpoint")
    if code in _REMEDIES:
        credentials = config.credentials or "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        remedy = _REMEDIES[code].format(credentials=credentials)
        return StorageError(f"{place}: {remedy} ({config.endpoint} answered {code})")
    tried = f", also after trying for {config.retry_seconds:g} s" if may_succeed_later(error) else ""
    more = ", and storage.ca_bundle or SSL_CERT_FILE" * isinstance(error, SSLError)
    more += ", and storage.path_style" * (not config.path_style)
    return StorageError(
        f"{place}: {config.endpoint} cannot be used ({reason_of(error)}){tried}; check that the server runs "
        f"and that storage.endpoint is right{more}"
    )


def reason_of(error: Exception) -> str:
    """The server's answer, or what stood in the way of one."""
    reason = _code(error) or in_one_line(f"{type(error).__name__}: {error}")[:300]
    if isinstance(error, S3Error) and error.message:
        reason += f", {error.message[:300]!r}"
    return reason


def _code(error: Exception) -> str | None:
    """The S3 error code, where the server or its status says one."""
    if isinstance(error, S3Error):
        return error.code
    status = _status(error)
    return None if status is None else _CODE_OF_STATUS.get(status, f"HTTP {status}")


def _status(error: Exception) -> int | None:
    if isinstance(error, S3Error):
        return error.response.status
    if isinstance(error, ServerError):
        return error.status_code
    if isinstance(error, InvalidResponseError):
        return error._code
    return None
