"""Addresses as logs, errors, reports and data files may show them: without what opens them."""

import json
import logging
import re

_ADDRESS = re.compile(r"\b[A-Za-z][A-Za-z0-9+.-]*://[^\s\"'<>]*[^\s\"'<>.,:;)]")
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
    """Formats a log record, tracebacks included, and redacts the addresses in it."""

    def format(self, record: logging.LogRecord) -> str:
        return redact_all(super().format(record))
