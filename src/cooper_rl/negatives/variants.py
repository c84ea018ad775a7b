"""Other answers in the form of a given one: `(1, 5]` -> `(1, 6]`, `[1, 5]`, `(2, 5]` (row 7).

A reference answer of a kind that no other problem has is compared with these (`models/decoys.py`).
"""

import random
import re
from collections.abc import Sequence
from typing import NamedTuple

from cooper_rl.negatives.perturb import change_number
from cooper_rl.verdicts.answers.verify import is_another_answer

MAX_DRAWS = 20
"""Answers drawn before there is none: the others mean the same."""
MAX_CHARS = 300
"""A longer answer has no variant: a search for what to exchange could take minutes."""
MAX_DIGITS = 12
"""A longer run of digits is replaced by another of its length."""
TWO_CHANGES = 0.3
"""Share of the answers that are changed in two places."""

_TOKEN = re.compile(r"\\[A-Za-z]+|[A-Za-z]+|\d+|[-+<>=]")
_LABEL = re.compile(r"[A-Za-z]\w*(?:\([a-z]\))? *(?=[<>=]|\\[gl]eq?\b)")
_UNIT = re.compile(r"(?<=\d )[A-Za-z]\b")
_COMMAND_WITH_WORDS = re.compile(r"\\(?:text|textbf|textnormal|mathrm|mbox|operatorname)$")
# Not after a function's name: `\gcd(6, 4)` is `\gcd(4, 6)`.
_PAIR = re.compile(r"(?:(?<=\\left)|(?<![A-Za-z]))([\[(])([^\[\](),]*),([^\[\](),]*?)(?:\s*\\right)?([\])])")
_BEGINS_A_NUMBER = re.compile(r"\d|\\[dt]?frac|\\sqrt|\\pi")
_BEFORE_A_NUMBER = ("-", "2")
_GROUPS = (
    ("+", "-"),
    ("<", ">", "="),
    (r"\le", r"\ge"),
    (r"\leq", r"\geq"),
    (r"\cup", r"\cap"),
    (r"\sin", r"\cos", r"\tan"),
    (r"\infty", "0", "1", "5"),
    ("even", "odd", "neither", "both"),
    ("yes", "no"),
    ("Yes", "No"),
    ("true", "false"),
    ("True", "False"),
    ("north", "south", "east", "west"),
    ("red", "blue", "green", "yellow", "orange", "white", "black", "gray", "brown"),
    ("line", "circle", "ellipse", "parabola", "hyperbola", "point", "plane", "sphere", "cone", "cylinder"),
    ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"),
    ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
     "November", "December"),
)  # fmt: skip
_EXCHANGED = {member: group for group in _GROUPS for member in group if not member.isdigit()}
_NAMES = ("Anna", "Ben", "Carla", "David", "Emma", "Frank", "Grace", "Henry", "Iris", "Jack", "Karen", "Leo")
_WORDS = ("apple", "river", "seven", "table", "garden", "letter", "window", "number", "square", "teacher")
_SMALL, _CAPITAL = "abckmnpqrtxyz", "ABCDEFGH"


class _Change(NamedTuple):
    """A part of an answer, and what could stand in its place."""

    start: int
    end: int
    text: str


def vary_answer(answer: str, rng: random.Random) -> str | None:
    """An answer that differs in a number, a sign, a bracket, a letter or a word; None where none is found."""
    if len(answer) > MAX_CHARS:
        return None
    for _ in range(MAX_DRAWS):
        found = answer
        for _ in range(1 + (rng.random() < TWO_CHANGES)):
            changes = _draw_changes(found, rng)
            if not changes:
                return None
            start, end, text = rng.choice(changes)
            found = found[:start] + text + found[end:]
        # A 1 before a root or a fraction changes nothing.
        if not found.startswith("1\\") and is_another_answer("", answer, found):
            return found
    return None


def _draw_changes(answer: str, rng: random.Random) -> list[_Change]:
    """Words that belong to no group are exchanged only where there is nothing else: they may be a unit.

    A bare 5 answers `x = 5` and `5 m`, and it would answer `y = 5` and `5 k` as well: those letters stay.
    """
    has_sign = answer.startswith(("-", "+"))
    label = _LABEL.match(answer)
    tokens = [
        match
        for match in _TOKEN.finditer(answer, label.end() if label else int(has_sign))
        if not _COMMAND_WITH_WORDS.match(match[0]) and not _UNIT.match(answer, match.start())
    ]
    changes = [
        _Change(*token.span(), text)
        for token in tokens
        if (text := _draw_alternative(token[0], rng)) is not None
    ]
    for pair in _PAIR.finditer(answer):
        # Some write a closed bracket at infinity, and mean the same.
        for bracket, end, both in ((1, 2, "[("), (4, 3, "])")):
            if r"\infty" not in pair[end]:
                changes.append(_Change(*pair.span(bracket), _other_of(both, pair[bracket], rng)))
        changes += [_Change(pair.start(2), pair.end(3), f"{pair[3].strip()}, {pair[2].strip()}")]
    if has_sign:  # a plus in its place would change nothing, or stand where nobody writes one
        changes.append(_Change(0, 1, ""))
    elif _BEGINS_A_NUMBER.match(answer):
        changes.append(_Change(0, 0, rng.choice(_BEFORE_A_NUMBER)))
    return changes or [
        _Change(*token.span(), _other_of(_NAMES if token[0][0].isupper() else _WORDS, token[0], rng))
        for token in tokens
        if token[0][0] != "\\"
    ]


def _draw_alternative(token: str, rng: random.Random) -> str | None:
    """Draw what could stand in a token's place; None where it stays."""
    if token.isdigit():
        return _another_number(token, rng)
    if (group := _EXCHANGED.get(token)) is not None:
        return _other_of(group, token, rng)
    if token.isalpha() and (len(token) <= 2 or token.isupper()):
        place = rng.randrange(len(token))
        letters = _CAPITAL if token[place].isupper() else _SMALL
        return token[:place] + _other_of(letters, token[place], rng) + token[place + 1 :]
    return None


def _other_of(group: Sequence[str], member: str, rng: random.Random) -> str:
    return rng.choice([other for other in group if other != member])


def _another_number(digits: str, rng: random.Random) -> str:
    """As near as not: off by 1, 2 or 10, or any other of as many digits."""
    if len(digits) <= MAX_DIGITS and rng.random() < 0.5:
        return change_number(digits, rng)
    first = str(rng.randrange(1, 10))
    return first + "".join(str(rng.randrange(10)) for _ in digits[1:])
