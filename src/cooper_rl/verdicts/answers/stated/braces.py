"""Braces and their partners (row 3): one pass, so that no nesting takes more than linear time."""

import re

_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
"""A pair of backslash and character is one match, so that `\\{` is no brace and `\\\\{` is one."""


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


def brace_excess(text: str) -> int:
    """Opening braces without a partner; -1: a closing one comes first."""
    depth = 0
    for brace in _BRACE.findall(text):
        depth += {"{": 1, "}": -1}.get(brace, 0)
        if depth < 0:
            break
    return depth
