"""Answers of a server, bounded in bytes: as they come over the network, and unpacked.

`servers/chat.py`, `servers/hedging.py` and `api/client.py` read every answer by what stands here.
"""

import time
import zlib
from typing import Any, NamedTuple

import httpx

from cooper_rl.addresses import redact

MAX_BYTES_PER_TOKEN, SPARE_BYTES = 64, 1 << 20
"""An answer of more bytes than `max_tokens` can need is not read to its end."""
ACCEPTED_ENCODING = "gzip"
"""What a request asks for. httpx asks for more where more is installed, and unpacks without a bound."""
_GZIP_HEADER = zlib.MAX_WBITS | 16


REDIRECTS = frozenset({301, 302, 303, 307, 308})
"""No request follows one: what is posted, and the key, are for the address that was given."""


class Posted(NamedTuple):
    """An answer, and by how many requests it was asked for."""

    answer: httpx.Response
    num_requests: int = 1


def max_answer_bytes(max_tokens: int) -> int:
    """Bytes of the longest answer of a chat server that is read."""
    return max_tokens * MAX_BYTES_PER_TOKEN + SPARE_BYTES


def status_of(answer: httpx.Response) -> str:
    """The answer of a server that refused or failed, in one line."""
    if answer.status_code in REDIRECTS:
        place = redact(answer.headers.get("location", "nowhere"))
        return f"HTTP {answer.status_code}, a redirection to {place[:200]}"
    return f"HTTP {answer.status_code}: {answer.text[:200]!r}"


def post(
    client: httpx.Client, url: str, body: dict[str, Any], *, max_bytes: int, max_seconds: float
) -> httpx.Response:
    """An answer within both limits as a whole; httpx gives every read of it the same time again.

    Raises:
        httpx.RequestError: there is none, or it is over a limit.
    """
    ends = time.monotonic() + max_seconds
    content = bytearray()
    with client.stream("POST", url, json=body) as answer:
        for part in answer.iter_raw():
            add_part(content, part, max_bytes)
            if time.monotonic() > ends:
                raise httpx.ReadTimeout(f"the answer took over {max_seconds} s")
    return to_response(answer, content, max_bytes)


def add_part(content: bytearray, part: bytes, max_bytes: int) -> None:
    """Append a part as it came over the network.

    Raises:
        httpx.ReadError: the answer is too long.
    """
    content += part
    _check_size(len(content), max_bytes)


def to_response(answer: httpx.Response, content: bytearray, max_bytes: int) -> httpx.Response:
    """The answer with the content that was read from its stream, unpacked as its headers say.

    Raises:
        httpx.ReadError: the unpacked answer is too long.
        httpx.DecodingError: it is packed in another way than was asked for, or damaged.
    """
    headers = answer.headers.copy()
    encoding = headers.pop("content-encoding", "identity").strip().lower()
    headers.pop("content-length", None)  # of the packed bytes
    body = bytes(content)
    if encoding == ACCEPTED_ENCODING:
        body = _unpack(body, max_bytes)
    elif encoding != "identity":
        raise httpx.DecodingError(f"the answer is packed as {encoding[:50]!r}, which was not asked for")
    return httpx.Response(answer.status_code, headers=headers, content=body)


def _unpack(content: bytes, max_bytes: int) -> bytes:
    try:
        unpacked = zlib.decompressobj(_GZIP_HEADER).decompress(content, max_bytes + 1)
    except zlib.error as error:
        raise httpx.DecodingError(f"the answer is no gzip: {error}") from error
    _check_size(len(unpacked), max_bytes)
    return unpacked


def _check_size(size: int, max_bytes: int) -> None:
    if size > max_bytes:
        raise httpx.ReadError(f"the answer has over {max_bytes} bytes")
