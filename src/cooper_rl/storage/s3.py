"""Objects on an S3 server, through the minio client: the only file that touches it (row 13).

Transfers go in parallel parts and hold little of them in memory; every request is tried again with growing,
random pauses; every fetched byte is hashed as it arrives. The client's own transfer functions are not used:
they know no conditional writes, fetch in one stream, and verify nothing.
"""

import contextlib
import hashlib
import logging
import math
import os
import random
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import unquote
from xml.etree.ElementTree import ParseError

import urllib3
from minio import Minio
from minio.credentials.credentials import Credentials
from minio.credentials.providers import EnvAWSProvider, Provider
from minio.datatypes import Part
from minio.error import MinioException, S3Error
from minio.helpers import check_bucket_name

from cooper_rl.config.infrastructure import StorageConfig
from cooper_rl.errors import DamagedObjectError, StorageError, WriteConflictError
from cooper_rl.machine.daemon_pool import is_hasty, wait_at_most
from cooper_rl.machine.drafts import draft_beside
from cooper_rl.outgoing import CONNECT_SECONDS, authorities
from cooper_rl.records.written import file_sha256
from cooper_rl.storage.base import BLOCK_BYTES, PIECE_BYTES, Content, check_key, joined_sha256
from cooper_rl.storage.transfer import (
    BlockwisePool,
    bare_key,
    check_tag,
    explain_refusal,
    map_in_order,
    may_succeed_later,
    read_secret,
    read_size,
    reason_of,
    save_piece,
)
from cooper_rl.waiting import Waiting

T = TypeVar("T")

logger = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 15.0
HASTY_ABORT_SECONDS = 2.0
HASH_HEADER = "x-amz-meta-sha256"
MAX_PARTS = 10_000
"""Of one object, for every S3 server."""


class FileProvider(Provider):
    """Credentials from a mounted secret, read for every request so that a rotated key is used at once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def retrieve(self) -> Credentials:
        """The two files' content."""
        return Credentials(read_secret(self._folder / "access_key"), read_secret(self._folder / "secret_key"))


class EnvironmentProvider(Provider):
    """Credentials from the environment variables of AWS, as they are named there."""

    def retrieve(self) -> Credentials:
        """The variables' values."""
        found = EnvAWSProvider().retrieve()
        return Credentials(
            bare_key(found.access_key, place="AWS_ACCESS_KEY_ID"),
            bare_key(found.secret_key, place="AWS_SECRET_ACCESS_KEY"),
            found.session_token and bare_key(found.session_token, place="AWS_SESSION_TOKEN"),
        )


class Version(NamedTuple):
    """An object as it was at one moment."""

    size: int
    """Bytes."""
    tag: str
    """As the server writes it, with quotes."""


class S3Store:
    """`ObjectStore` below `s3://bucket/prefix`."""

    def __init__(self, config: StorageConfig, uri: str) -> None:
        """No request is made yet.

        Raises:
            StorageError: address, CA bundle or credentials are not usable.
        """
        # Not as a URL, which ends at the first # or ?.
        self._bucket, _, path = uri.removeprefix("s3://").partition("/")
        self._prefix = path.strip("/")
        if self._prefix:
            check_key(self._prefix)
        self._config = config
        self._part_size = config.part_mib << 20
        self._random = random.SystemRandom()
        limit = f"storage.retry_seconds={config.retry_seconds:g}"
        self._waiting = Waiting(f"{config.endpoint}, for s3://{self._bucket}", logger, limit=limit)
        self._client = _connect(config, self._bucket, self._waiting)
        if not config.path_style:
            self._client.enable_virtual_style_endpoint()

    @property
    def uri(self) -> str:
        return f"s3://{self._bucket}/{self._prefix}".rstrip("/")

    def put_file(self, key: str, path: Path, *, sha256: str, may_link: bool = False) -> None:
        size = path.stat().st_size
        # A header of our own: the ETag is the MD5 of the content only for objects in one part, and with no
        # encryption.
        headers = {HASH_HEADER: sha256, "Content-Type": "application/octet-stream"}
        # One request is visible at once or not at all; parts need three kinds of requests and can be left
        # behind.
        if size <= self._part_size:
            self._request("PUT", key, body=path.read_bytes(), headers=headers)
            return
        name = self._name(key)
        upload = self._retry(
            key, lambda: self._client._create_multipart_upload(self._bucket, name, dict(headers))
        )
        part_size = max(self._part_size, math.ceil(size / MAX_PARTS))
        try:
            send = self._sender(key, path, upload, part_size=part_size)
            parts = list(map_in_order(send, range(0, size, part_size), self._config.num_parallel))
            self._retry(key, lambda: self._complete(key, upload, parts, sha256=sha256))
        # Parts that were uploaded are stored, and billed, until they are aborted; no listing of objects
        # shows them.
        except BaseException as error:
            if not is_hasty(type(error)):
                self._abort(name, upload)
            else:
                # Of a server that is away, whoever pressed Ctrl-C would wait for the time-out.
                wait_at_most(HASTY_ABORT_SECONDS, partial(self._abort, name, upload))
            raise

    def get_file(self, key: str, path: Path, *, sha256: str) -> None:
        answer = self._request("HEAD", key, is_missing_ok=True)
        if answer is None:
            raise self._damaged(key, "missing")
        starts = range(0, read_size(answer.headers, config=self._config), PIECE_BYTES)
        try:
            # A reader, and a later start, must never find half a file under its name.
            with draft_beside(path) as (_, draft, _):
                draft.write_bytes(b"")
                fetch = partial(self._fetch, key, draft)
                digests = list(map_in_order(fetch, starts, self._config.num_parallel))
                # A hash of the whole file, as sha256sum writes it, is no joined one; see
                # `ObjectStore.get_file`.
                if joined_sha256(digests) != sha256 and ("-" in sha256 or file_sha256(draft) != sha256):
                    raise self._damaged(key, "changed")
                draft.replace(path)
        except OSError as error:
            raise StorageError(f"{path}: cannot be written ({error}); free space there") from error

    def read(self, key: str) -> Content | None:
        answer = self._request("GET", key, is_missing_ok=True)
        if answer is None:
            return None
        expected = answer.headers.get(HASH_HEADER)
        if expected is not None and hashlib.sha256(answer.data).hexdigest() != expected:
            raise self._damaged(key, "changed")
        return Content(answer.data, _tag(answer))

    def look_at(self, key: str) -> Version | None:
        """An object that somebody else wrote, as it is now; None when there is none."""
        answer = self._request("HEAD", key, is_missing_ok=True)
        return answer and Version(read_size(answer.headers, config=self._config), answer.headers["etag"])

    def stream(self, key: str, path: Path, version: Version) -> None:
        """Fetch an object that somebody else wrote, piece by piece, unverified.

        Raises:
            WriteConflictError: it is another one meanwhile.
        """
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        except OSError as error:
            raise StorageError(f"{path}: cannot be written ({error}); free space there") from error
        for start in range(0, version.size, PIECE_BYTES):
            self._fetch(key, path, start, tag=version.tag)
        if path.stat().st_size != version.size:  # a proxy that knows no ranges sends all of it each time
            raise self._damaged(key, "changed")

    def write(self, key: str, data: bytes, *, replaces: str | None) -> str:
        # Ceph compares the tag as it is sent; AWS and MinIO take it with and without quotes.
        condition = {"If-None-Match": "*"} if replaces is None else {"If-Match": replaces}
        # A conditional write is what makes LATEST a lock: of two runs that replace the same tag one is
        # refused.
        headers = condition | {HASH_HEADER: hashlib.sha256(data).hexdigest()}
        try:
            return _tag(self._request("PUT", key, body=data, headers=headers))
        except WriteConflictError:
            # The first try may have arrived although its answer did not.
            found = self.read(key)
            tag = found.tag if found and found.data == data else self.tag_among(key, [data])
            if tag is None:
                raise
            return tag

    def tag_among(self, key: str, contents: Iterable[bytes]) -> str | None:
        name = self._name(key)
        listed = self._retry(key, lambda: list(self._client.list_objects(self._bucket, prefix=name)))
        tags = [str(item.etag).strip('"') for item in listed if item.object_name == name]
        # The MD5 of the content, but on servers that encrypt: there no object is known by its tag.
        known = {hashlib.md5(data, usedforsecurity=False).hexdigest() for data in contents}
        return next((tag for tag in tags if tag in known), None)

    def holds(self, key: str, sha256: str) -> bool:
        answer = self._request("HEAD", key, is_missing_ok=True)
        return answer is not None and answer.headers.get(HASH_HEADER) == sha256

    def keys(self, prefix: str) -> list[str]:
        def fetch() -> list[str]:
            listed = self._client.list_objects(self._bucket, prefix=self._start(prefix), recursive=True)
            return sorted(str(item.object_name).removeprefix(self._start("")) for item in listed)

        return self._retry(prefix, fetch)

    def delete(self, keys: Sequence[str]) -> None:
        # One by one, in the caller's order: S3's bulk delete keeps none, and the order is what an
        # interruption relies on.
        for key in keys:
            self._request("DELETE", key, is_missing_ok=True)

    def remove_unfinished(self, objects: Iterable[tuple[str, str]]) -> int:
        # One request for every key: MinIO lists uploads of whole names only. Hashes are of no use: S3 tells
        # no metadata of an upload before it is complete.
        names = dict.fromkeys(self._name(key) for key, _ in objects)
        found = [(name, upload) for name in names for upload in self._uploads(name)]
        for name, upload in found:
            self._abort(name, upload)
        return len(found)

    def _uploads(self, name: str) -> list[str]:
        """Ids of the unfinished uploads of exactly this name, which a listing by prefix mixes with longer
        ones."""
        listed = self._retry(
            name, lambda: self._client._list_multipart_uploads(self._bucket, prefix=name).uploads
        )
        # Ceph 16 encodes names as the client asks, but does not say so, and the client leaves them encoded.
        return [
            str(each.upload_id) for each in listed if name in (each.object_name, unquote(each.object_name))
        ]

    def path_of(self, key: str) -> Path | None:
        return None

    def _name(self, key: str) -> str:
        return self._start(check_key(key))

    def _start(self, prefix: str) -> str:
        return f"{self._prefix}/{prefix}" if self._prefix else prefix

    def _sender(self, key: str, path: Path, upload: str, *, part_size: int) -> Callable[[int], Part]:
        def send(start: int) -> Part:
            with path.open("rb", buffering=0) as file:
                # Read when it is sent, at its offset: parts go out in parallel, and a whole model would not
                # fit into memory.
                data = os.pread(file.fileno(), part_size, start)
            number = start // part_size + 1
            query = {"partNumber": str(number), "uploadId": upload}
            return Part(number, _tag(self._request("PUT", key, body=data, query=query)))

        return send

    def _fetch(self, key: str, path: Path, start: int, *, tag: str | None = None) -> bytes:
        """One piece into its place in the file; returns its hash. `tag`: of the object that it must be of."""
        last = start + PIECE_BYTES - 1

        def send() -> bytes:
            # Ranges in parallel: one connection is bound by its window and the distance, several fill the
            # network.
            headers: dict[str, Any] = {"Range": f"bytes={start}-{last}"}
            if tag is not None:
                headers["If-Match"] = tag
            answer: Any = self._client._execute(
                "GET", self._bucket, self._name(key), headers=headers, preload_content=False
            )
            try:
                return save_piece(self._heard(answer.stream(BLOCK_BYTES)), path, start=start)
            finally:
                # Unread bytes stay in the connection otherwise, and the pool would make a new one for each
                # piece.
                answer.release_conn()

        return self._retry(key, send)

    def _heard(self, blocks: Iterable[bytes]) -> Iterator[bytes]:
        for block in blocks:
            self._waiting.heard()
            yield block

    def _complete(self, key: str, upload: str, parts: list[Part], *, sha256: str) -> None:
        try:
            done = self._client._complete_multipart_upload(self._bucket, self._name(key), upload, parts)
        except S3Error as error:
            # An earlier try may have arrived although its answer did not.
            found = self._request("HEAD", key, is_missing_ok=True) if error.code == "NoSuchUpload" else None
            if found is None or found.headers.get(HASH_HEADER) != sha256:
                raise
        else:
            # A server may answer 200 first and report its error in the body. Ceph 16 reports success without
            # a tag.
            if not (done.etag or done.location):
                # Of urllib3's kind, which `_retry` takes for an error of the connection.
                raise urllib3.exceptions.HTTPError("the parts could not be put together")

    def _abort(self, name: str, upload: str) -> None:
        # What cannot be removed now is removed by `remove_unfinished`.
        with contextlib.suppress(MinioException, urllib3.exceptions.HTTPError, StorageError):
            self._client._abort_multipart_upload(self._bucket, name, upload)

    def _damaged(self, key: str, state: str) -> DamagedObjectError:
        return DamagedObjectError(
            f"{self.uri}/{key}: {state} since it was written; use an earlier checkpoint"
        )

    def _request(
        self,
        method: str,
        key: str,
        *,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
        query: dict[str, str] | None = None,
        is_missing_ok: bool = False,
    ) -> Any:
        """One signed request, tried again while that can help; None for a missing object where allowed."""
        name = self._name(key)

        def send() -> Any:
            try:
                # Copies: the client adds headers to what it is given, and the next try would send them too.
                options: dict[str, Any] = {"headers": dict(headers or {}), "query_params": dict(query or {})}
                answer = self._client._execute(method, self._bucket, name, body=body, **options)
            except S3Error as error:
                if is_missing_ok and error.code == "NoSuchKey":
                    return None
                raise
            check_tag(method, answer.headers, config=self._config)
            return answer

        return self._retry(key, send)

    def _retry(self, key: str, send: Callable[[], T]) -> T:
        with self._waiting.asked():
            return self._send_patiently(key, send)

    def _send_patiently(self, key: str, send: Callable[[], T]) -> T:
        deadline = time.monotonic() + self._config.retry_seconds
        pause = FIRST_PAUSE_SECONDS
        while True:
            try:
                return send()
            except (MinioException, urllib3.exceptions.HTTPError, OSError, ValueError, ParseError) as error:
                # With jitter: eight ranks that were refused together would else come back together.
                wait = self._random.uniform(pause / 2, pause)
                # A deadline and not a count: what counts is for how long a server may be restarted.
                if not may_succeed_later(error) or time.monotonic() + wait > deadline:
                    raise explain_refusal(f"{self.uri}/{key}", error, config=self._config) from error
                self._waiting.failed(reason_of(error))
                time.sleep(wait)
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)


def _connect(config: StorageConfig, bucket: str, waiting: Waiting) -> Minio:
    # Neither value is shown: it may hold a password.
    if "@" in bucket:
        raise StorageError("storage.uri must be s3://bucket/prefix, without user or password")
    endpoint = re.fullmatch(r"(https?)://([^/?#@\s]+)/?", config.endpoint or "")
    if endpoint is None:
        raise StorageError(
            "storage.endpoint must be http(s)://host:port, without user or password, and no path"
        )
    bundle = str(config.ca_bundle or authorities())
    if not Path(bundle).is_file():
        name = "storage.ca_bundle" if config.ca_bundle else "SSL_CERT_FILE"
        raise StorageError(f"{name}={bundle}: no such file; give a PEM file")
    provider = FileProvider(config.credentials) if config.credentials else EnvironmentProvider()
    silence = config.timeout_seconds
    try:
        check_bucket_name(bucket)
        provider.retrieve()
        return Minio(
            endpoint[2],
            credentials=provider,
            secure=endpoint[1] == "https",
            region=config.region,
            http_client=BlockwisePool(
                waiting.heard,
                blocksize=BLOCK_BYTES,
                # One connection for each part under way, and one for the request that starts or ends them.
                maxsize=config.num_parallel + 1,
                timeout=urllib3.Timeout(connect=min(CONNECT_SECONDS, silence), read=silence),
                # urllib3 would repeat PUTs too, unseen by our deadline and without knowing which errors are
                # worth it.
                retries=False,
                cert_reqs="CERT_REQUIRED",
                ca_certs=bundle,
            ),
        )
    except ValueError as error:
        raise StorageError(
            f"the object store cannot be used ({error}); check storage.uri and storage.endpoint, and set "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or storage.credentials to a folder with the files "
            "access_key and secret_key"
        ) from error


def _tag(answer: Any) -> str:
    return answer.headers["etag"].strip('"')
