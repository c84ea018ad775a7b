"""Closing braces (row 3): one pass with a stack, so that no nesting takes more than linear time."""

import re

_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)


def closing_braces(text: str) -> dict[int, int]:
    """Position of each opening brace -> position of the brace that closes it."""
    opened: list[int] = []
    closing: dict[int, int] = {}
    for match in _BRACE.finditer(text):
        if match[0] == "{":
            opened.append(match.start())
        elif match[0] == "}" and opened:
            closing[opened.pop()] = match.start()
    return closing
