r"""Mathematics round a box that goes on with it (row 3): `-\boxed{5}`, `\boxed{5}^2`, `\boxed{5}` million.

A unit, a full stop and what leads to the box (`x = \boxed{5}`) are no part of its value.
"""

import re

from cooper_rl.verdicts.answers.units import SCALES

REACH = 40
"""Characters before and after a box that are looked at."""
_RELATION = r"\\(?:ne|neq|not\s?=|le|leq|ge|geq|lt|gt)(?![A-Za-z])|!=|≠|≤|≥"
_INFIX = r"\\(?:cdot|times|div|pm|mp)(?![A-Za-z])|[×÷·±]"
_BEFORE = re.compile(
    # An operator, a relation or a function; a dash behind a word is none.
    rf"(?:{_RELATION}|{_INFIX}|\\(?:sqrt|[dt]?frac|log|ln|sin|cos|tan)(?![A-Za-z])(?:\[\w\])?|[+/^_√]|\d\s?\*"
    r"|(?<![A-Za-z<])[A-Za-z\d)}]\s?[<>]|[=$({,\d})]\s?[-−])[\s$({]{0,4}$"
    r"|\\[dt]?frac\s?\{[^{}]{0,20}\}\s?\{(?:[^{}]{0,20}\})?\s?$|\\sqrt\s?\{[^{}]{0,20}\}\s?$"
    r"|\d\Z|(?<![-−])[-−]\Z"  # on the same line
)
_AFTER = re.compile(
    rf"[ \t$)}}]{{0,4}}(?:{_RELATION}|{_INFIX}|\\(?:to|sqrt|[dt]?frac|pi)(?![A-Za-z])"
    r"|[-+−/]\s?(?:[\d\\($]|[A-Za-z](?![A-Za-z]))|\^(?!\s?\{?\s?\\circ)|<(?![/|])|>"
    r"|\*\s?[\d\\($]|=(?!\s?\\?[A-Za-z]{1,9}\s?[$.,]))"  # `\boxed{5} = x`
    r"|[\d_{]|[.,]\d|[A-Za-z](?![A-Za-z])"
    rf"|[ \t$]{{0,4}}(?:\\text\s?\{{\s?)?(?:{'|'.join(SCALES)}|squared|cubed|times|plus|minus)\b"
    r"|[ \t$]{0,4}or (?:more|less)\b"
)


def is_factor(text: str, start: int, end: int) -> bool:
    """True if the mathematics round a box goes on with its value."""
    before, after = text[max(0, start - REACH) : start], text[end : end + REACH]
    return _BEFORE.search(before) is not None or _AFTER.match(after) is not None
