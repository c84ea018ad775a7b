"""The kind of a reference answer in mathematics, by its notation: labels are counted for each (row 3).

Rough on purpose: it sorts counts in a report, and no verdict rests on it.
"""

import re

from cooper_rl.errors import CooperError
from cooper_rl.verdicts.answers.numbers import Quantity, parse_quantity
from cooper_rl.verdicts.answers.structure import parse_structure
from cooper_rl.verdicts.answers.text import normalise_answer

MAX_CHARS = 300
"""A longer reference answer is text."""
_SIMPLE = (
    ("choice", re.compile(r"\(?[A-Z]\)?")),
    ("fraction", re.compile(r"[-+]?(?:\d+ ?/ ?\d+|\d* ?\\frac ?\{?-?\d+\}? ?\{?\d+\}?)")),
)
_PARTS = {"list": "list or set", "tuple": "point, interval or matrix", "union": "point, interval or matrix"}
_INEQUALITY = re.compile(r"[<>]|\\(?:leq?|geq?|neq?|in|equiv|approx)(?![a-z])")
_MATHEMATICS = re.compile(r"[\d^_+*/]|\\[a-z]|[a-z]\(|^[a-z]$")


def name_answer_type(reference_answer: str) -> str:
    """One of eleven names, such as `integer` or `expression`."""
    text = normalise_answer(reference_answer[: MAX_CHARS + 1])
    if len(text) > MAX_CHARS:
        return "text"
    for name, pattern in _SIMPLE:
        if pattern.fullmatch(text):
            return name
    try:
        quantity = parse_quantity(text)
        parts = _PARTS.get(parse_structure(text).kind)
    except (CooperError, RecursionError, ValueError):
        return "text"
    if quantity is not None:
        return _name_number(quantity)
    # An inequality in one variable is read as an interval, and is one in other words.
    if _INEQUALITY.search(text):
        return "equation or inequality"
    if parts is not None:
        return parts
    if "=" in text:
        return "equation or inequality"
    return "expression" if _MATHEMATICS.search(text) else "text"


def _name_number(quantity: Quantity) -> str:
    if quantity.unit:
        return "percentage" if quantity.unit == "%" else "number with a unit"
    if quantity.decimals is not None:
        return "decimal"
    return "integer" if quantity.value.denominator == 1 else "fraction"
