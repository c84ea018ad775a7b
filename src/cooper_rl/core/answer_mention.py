"""A verifier that needs no parser: is the reference answer's value written in the completion at all? (row 11)

It can only reject, and only where the reference answer is a number. Garbage states no answer that the rule
verifier could read, so that it abstains; this one does not. Deliberately left out: where the value stands.
"""

import re

from cooper_rl.core.answer_comparison import NUMBER_WORDS
from cooper_rl.core.answer_numbers import Quantity, parse_quantity
from cooper_rl.core.answer_text import normalise_answer
from cooper_rl.schema import Verdict

MAX_CHARS = 20_000
"""Longer completions are not searched: the verdict is an abstention."""

_NUMBER = re.compile(r"\\frac\s?\{-?\d{1,40}\}\s?\{\d{1,40}\}|\d[\d,]*(?:\.\d+)?(?:\s?/\s?\d{1,40})?")
_WORD = re.compile(r"[a-z]+(?:[- ][a-z]+)?")


def check_mention(reference_answer: str, completion: str) -> Verdict:
    """`incorrect` where a number is the reference answer and its value is written nowhere, else `unparsable`.

    Signs are not compared: `x = -3` mentions 3.
    """
    reference = parse_quantity(normalise_answer(reference_answer))
    if reference is None or reference.base is not None or len(completion) > MAX_CHARS:
        return "unparsable"
    text = completion.lower()
    numbers = (number for match in _NUMBER.finditer(text) for number in _readings(match[0]))
    if any(abs(number.value) == abs(reference.value) for number in numbers):
        return "unparsable"
    words = (word for match in _WORD.finditer(text) for word in (match[0], *re.split("[- ]", match[0])))
    if any(NUMBER_WORDS.get(word) == abs(reference.value) for word in words):
        return "unparsable"
    return "incorrect"


def _readings(written: str) -> list[Quantity]:
    """A number, and both halves of a fraction: `8/2` mentions 4, 8 and 2."""
    parts = [written, *re.split("/", written)]
    return [quantity for part in parts if (quantity := parse_quantity(part.strip().rstrip(","))) is not None]
