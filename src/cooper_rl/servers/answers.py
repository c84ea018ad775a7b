"""Answers of a chat server as they arrive: read part by part, and not past what `max_tokens` can need.

Requests with and without a second one (`hedging.py`, `chat.py`) collect their answers here.
"""

import httpx

from cooper_rl.config.data import ServerConfig

MAX_BYTES_PER_TOKEN, SPARE_BYTES = 64, 1 << 20
"""An answer of more bytes than `max_tokens` can need is not read to its end."""


def add_part(content: bytearray, part: bytes, server: ServerConfig) -> None:
    """Append a part as it came over the network: what is counted against the bound are raw bytes.

    Raises:
        httpx.ReadError: the answer is too long.
    """
    content += part
    if len(content) > server.max_tokens * MAX_BYTES_PER_TOKEN + SPARE_BYTES:
        raise httpx.ReadError(f"the answer has over {len(content)} bytes")


def to_response(answer: httpx.Response, content: bytearray) -> httpx.Response:
    """The answer with the content that was read from its stream, decoded as its headers say."""
    return httpx.Response(answer.status_code, headers=answer.headers, content=bytes(content))
