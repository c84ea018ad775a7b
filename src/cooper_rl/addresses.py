"""Addresses as logs, errors, reports and data files may show them: without what opens them.

redact         one address                     redact_values  a configuration that is to be written
redact_all     a text that holds some          addresses_in   those in settings, as they may be shown later
redact_output  everything that this process logs or says of an uncaught error
"""

import json
import logging
import re
import shlex
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, cast
from urllib.parse import unquote

_ADDRESS = re.compile(r"\b[A-Za-z][A-Za-z0-9+.-]*://[^\s\"'<>]*[^\s\"'<>.,:;)]")
_IN_QUOTES = re.compile(r"\"((?:[^\"\\]|\\.)*://(?:[^\"\\]|\\.)*)\"|'([^']*://[^']*)'")
_WHOLE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_HIDDEN = "***"
_REDACTED = re.compile(r"\*\*\*(:\d+)?")
"""The redaction of a query, perhaps with the number of a row of that file."""
_PAGE = re.compile(r"/(runs|recurringruns|pipelines|experiments)(/details/[0-9a-f-]{36})?")
"""A page of Kubeflow's dashboard, which is no secret."""


def redact(address: str) -> str:
    """An address without user, password, query and fragment, each replaced by `***`; other text as it is.

    Everything before the last `@` is taken for a password, since one that is written as it is may hold any
    character. In `s3://` addresses `?`, `#` and a later `@` belong to an object's name.
    """
    scheme, separator, rest = address.partition("://")
    if not separator:
        return address
    if scheme == "s3":
        bucket, slash, key = rest.partition("/")
        _, at, bucket = bucket.rpartition("@")
        return f"s3://{_HIDDEN + '@' if at else ''}{bucket}{slash}{key}"
    _, at, rest = rest.rpartition("@")
    place = re.split(r"[?#]", rest, maxsplit=1)[0]
    mark, more = rest[len(place) : len(place) + 1], rest[len(place) + 1 :]
    is_page = mark == "#" and _PAGE.fullmatch(more)
    if mark and not is_page and not _REDACTED.fullmatch(more):
        more = _HIDDEN
    return f"{scheme}://{_HIDDEN + '@' if at else ''}{place}{mark}{more}"


def redact_all(text: str, *known: str) -> str:
    """A message with every address in it as `redact` shows it, those of `known` whatever they hold."""
    for address in known:
        for form in (address, repr(address)[1:-1], json.dumps(address)[1:-1]):
            text = text.replace(form, redact(address))
    return _ADDRESS.sub(lambda found: redact(found[0]), text)


class RedactingFormatter(logging.Formatter):
    """Another formatter's text of a record, tracebacks included, without what opens an address in it.

    Args:
        inner: The other formatter.
        known: Addresses that are redacted whatever they hold.
    """

    def __init__(self, inner: logging.Formatter, known: tuple[str, ...] = ()) -> None:
        super().__init__()
        self.inner, self.known = inner, known

    def format(self, record: logging.LogRecord) -> str:
        return redact_all(self.inner.format(record), *self.known)


def split_user(address: str) -> tuple[str, str | None]:
    """An http(s) address without user and password, and these as `user:password`; None where it has none.

    Clients log the addresses that they ask.
    """
    scheme, separator, rest = address.partition("://")
    # An `@` after the first slash belongs to the path, as clients read it.
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    user, at, host = authority.rpartition("@")
    return (f"{scheme}{separator}{host}{rest[len(authority) :]}", unquote(user)) if at else (address, None)


def redact_values(value: Any) -> Any:
    """A dumped configuration in which every string is shown without what opens an address in it."""
    if isinstance(value, Mapping):
        return {key: redact_values(each) for key, each in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [redact_values(each) for each in cast("list[Any]", value)]
    if not isinstance(value, str):
        return value
    # An address by itself may hold blanks and quotes, where one in a text ends.
    return redact(value) if _WHOLE.match(value) else redact_all(value)


def addresses_in(value: Any) -> Iterator[str]:
    """Addresses in the strings of a value, which may be lists, tables, and settings as `--set` takes them."""
    if isinstance(value, Mapping | list | tuple):
        for each in value.values() if isinstance(value, Mapping) else cast("list[Any]", value):
            yield from addresses_in(each)
    elif isinstance(value, str) and "://" in value:
        key, _, address = value.partition("=")
        quoted = [one or other for one, other in _IN_QUOTES.findall(value)]
        yield from quoted or [value if "://" in key else address]
        for each in quoted:
            with suppress(ValueError):  # as TOML and JSON read it
                yield json.loads(f'"{each}"')


def opens_something(value: Any) -> bool:
    """True if an address in a value holds a password or a signature."""
    return any(redact(address) != address for address in addresses_in(value))


def redact_command(words: Sequence[str]) -> str:
    """A command line as a shell reads it, its words without what opens an address in them."""
    shown = [redact_all(word, *addresses_in(word)) for word in words]
    # One that was redacted is not to be run as it stands, and quotes round its stars would only puzzle.
    return " ".join(
        shlex.quote(word) if text == word else text for word, text in zip(words, shown, strict=True)
    )


def redact_output(*known: str) -> None:
    """Redact what this process logs from now on, through handlers that are there, and tracebacks that end it.

    Addresses among `known` are redacted whatever they hold.
    """
    for handler in logging.getLogger().handlers:
        inner = handler.formatter or logging.Formatter()
        before = inner if isinstance(inner, RedactingFormatter) else RedactingFormatter(inner)
        handler.setFormatter(RedactingFormatter(before.inner, (*before.known, *known)))
    redact_tracebacks(*known)


def redact_tracebacks(*known: str) -> None:
    """Redact what Python shows of an error that ends this process."""

    def show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        sys.stderr.write(redact_all("".join(traceback.format_exception(kind, error, trace)), *known))

    sys.excepthook = show
