"""A run's log without what opens the addresses in it: kfp prints each task's input as it is."""

from collections.abc import Callable
from typing import Any

from cooper_rl.addresses import addresses_in, redact_all


def redactor(arguments: dict[str, Any]) -> Callable[[str], str]:
    """Hides user, password, query and fragment of every address in a line.

    Args:
        arguments: of the pipeline. Their addresses are hidden whole, also with blanks and quotes in them.
    """
    known = sorted(set(addresses_in(arguments)), key=len, reverse=True)
    return lambda line: redact_all(line, *known)
