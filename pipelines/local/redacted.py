"""A run's log without what opens the addresses in it: kfp prints each task's input as it is."""

import re
from collections.abc import Callable, Iterator
from typing import Any

from cooper_rl.addresses import redact_all

_IN_QUOTES = re.compile(r"\"([^\"]*://[^\"]*)\"|'([^']*://[^']*)'")


def redactor(arguments: dict[str, Any]) -> Callable[[str], str]:
    """Hides user, password, query and fragment of every address in a line.

    Args:
        arguments: of the pipeline. Their addresses are hidden whole, also with blanks and quotes in them.
    """
    known = sorted(set(_addresses(arguments)), key=len, reverse=True)
    return lambda line: redact_all(line, *known)


def _addresses(value: Any) -> Iterator[str]:
    """Addresses in the strings of a value, which may be lists as `--set` takes them."""
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _addresses(each)
    elif isinstance(value, str) and "://" in value:
        key, _, address = value.partition("=")
        quoted = [one or other for one, other in _IN_QUOTES.findall(value)]
        yield from quoted or [value if "://" in key else address]
