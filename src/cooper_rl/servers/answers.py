"""Answers of a server, bounded in bytes: as they come over the network, and unpacked.

`servers/chat.py` and `api/client.py` read every answer by what stands here.
"""

import math
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import httpx

from cooper_rl.addresses import redact
from cooper_rl.outgoing import unpack

MAX_BYTES_PER_TOKEN, SPARE_BYTES = 64, 1 << 20
"""An answer of more bytes than `max_tokens` can need is not read to its end."""
REDIRECTS = frozenset({301, 302, 303, 307, 308})
"""No request follows one: what is posted, and the key, are for the address that was given."""


def max_answer_bytes(max_tokens: int) -> int:
    """Bytes of the longest answer of a chat server that is read."""
    return max_tokens * MAX_BYTES_PER_TOKEN + SPARE_BYTES


def status_of(answer: httpx.Response, hide: Callable[[str], str] = str) -> str:
    """The answer of a server that refused or failed, in one line; `hide` takes out what nobody is to see."""
    if answer.status_code in REDIRECTS:
        place = redact(answer.headers.get("location", "nowhere"))
        return f"HTTP {answer.status_code}, a redirection to {place[:200]}"
    return f"HTTP {answer.status_code}: {hide(answer.text)[:200]!r}"


def read_retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that a server asks to wait, as a number or a date (`Retry-After`, RFC 9110) or in milliseconds
    (`retry-after-ms`, as some servers have it); None where it says nothing that can be read."""
    milliseconds, asked = headers.get("retry-after-ms", ""), headers.get("retry-after", "").strip()
    with suppress(ValueError):
        return _bounded(float(milliseconds) / 1000)
    with suppress(ValueError):
        return _bounded(float(asked))
    with suppress(ArithmeticError, TypeError, ValueError):  # OverflowError: a year of twenty digits
        date = parsedate_to_datetime(asked)
        date = date if date.tzinfo else date.replace(tzinfo=UTC)
        return _bounded((date - datetime.now(UTC)).total_seconds())
    return None


def _bounded(seconds: float) -> float | None:
    return max(0.0, seconds) if math.isfinite(seconds) else None


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
    """Append a part of an answer.

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
    body = bytearray()
    # Without a body an answer may still name its packing: its status is what counts.
    for part in unpack([bytes(content)], headers) if content else ():
        add_part(body, part, max_bytes)
    for key in ("content-encoding", "content-length"):  # of the packed bytes
        headers.pop(key, None)
    found = httpx.Response(answer.status_code, headers=headers, content=bytes(body))
    # Whatever its header says: Python's codecs `undefined`, `hex` and others read no text, and raise.
    found.encoding = "utf-8"
    return found


def _check_size(size: int, max_bytes: int) -> None:
    if size > max_bytes:
        raise httpx.ReadError(f"the answer has over {max_bytes} bytes")
