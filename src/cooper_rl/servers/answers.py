"""Answers of a chat server, bounded in bytes: as they come over the network, and unpacked.

`servers/chat.py` and `servers/hedging.py` read every answer by what stands here.
"""

import zlib
from typing import NamedTuple

import httpx

from cooper_rl.config.data import ServerConfig

MAX_BYTES_PER_TOKEN, SPARE_BYTES = 64, 1 << 20
"""An answer of more bytes than `max_tokens` can need is not read to its end."""
ACCEPTED_ENCODING = "gzip"
"""What a request asks for. httpx asks for more where more is installed, and unpacks without a bound."""
_GZIP_HEADER = zlib.MAX_WBITS | 16


class Posted(NamedTuple):
    """An answer, and by how many requests it was asked for."""

    answer: httpx.Response
    num_requests: int = 1


def add_part(content: bytearray, part: bytes, server: ServerConfig) -> None:
    """Append a part as it came over the network.

    Raises:
        httpx.ReadError: the answer is too long.
    """
    content += part
    _check_size(len(content), server)


def to_response(answer: httpx.Response, content: bytearray, server: ServerConfig) -> httpx.Response:
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
        body = _unpack(body, server)
    elif encoding != "identity":
        raise httpx.DecodingError(f"the answer is packed as {encoding[:50]!r}, which was not asked for")
    return httpx.Response(answer.status_code, headers=headers, content=body)


def _unpack(content: bytes, server: ServerConfig) -> bytes:
    try:
        unpacked = zlib.decompressobj(_GZIP_HEADER).decompress(content, _max_bytes(server) + 1)
    except zlib.error as error:
        raise httpx.DecodingError(f"the answer is no gzip: {error}") from error
    _check_size(len(unpacked), server)
    return unpacked


def _check_size(size: int, server: ServerConfig) -> None:
    if size > _max_bytes(server):
        raise httpx.ReadError(f"the answer has over {_max_bytes(server)} bytes")


def _max_bytes(server: ServerConfig) -> int:
    return server.max_tokens * MAX_BYTES_PER_TOKEN + SPARE_BYTES
