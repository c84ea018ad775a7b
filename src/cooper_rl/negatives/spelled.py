"""Mathematics: numbers that a text writes in words, found by value: `three fifths`, `two hundred and six`.

Nothing is parsed: a number counts as written where all of its words stand in the text, in any order, so that
no way to write it is missed.
"""

import re
from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

from cooper_rl.verdicts.answers.comparison import NUMBER_WORDS
from cooper_rl.verdicts.answers.units import SCALES

MAX_DECIMALS = 12
MAX_SPELLED = 10**15
"""Larger numbers are not looked for in words."""

_TOKEN = re.compile(r"[a-z]+|\d+(?:\.\d+)?|:")
_MISSPELLED = (("fourty", "forty"), ("ninty", "ninety"))
_NOTHING = frozenset(("no", "none", "nothing", "never", "nobody", "neither", "empty"))
_LARGE = {
    word + plural: scale
    for word, scale in (*SCALES.items(), ("lakh", 10**5), ("crore", 10**7))
    for plural in ("", "s")
}
_IRREGULAR = {1: "", 2: "half", 3: "third", 5: "fifth", 8: "eighth", 9: "ninth", 12: "twelfth"}
_RATIO = re.compile(
    r"(?<![\d.])(\d{1,15}) (?:out of|in|of|over|to|from|per|divided by|by|:) (?:every |each )?"
    r"(?=(\d{1,15})(?![\d.]))"
)


def _small_words() -> dict[str, int]:
    """`twenty-one`, `twenty one` and `twentyone` -> 21, up to 99."""
    named = {word: number for word, number in NUMBER_WORDS.items() if number < 100 and word != "a dozen"}
    named |= {word.replace("-", ""): number for word, number in named.items()}
    named |= {"once": 1, "twice": 2, "thrice": 3, "couple": 2, "pair": 2}
    return named | {"nought": 0, "naught": 0, "nil": 0}


def _part_words() -> dict[str, int]:
    """`half` -> 2, `thirds` -> 3, up to `twentieths`, then by tens."""
    ordinals = {
        _IRREGULAR.get(number, re.sub(r"y$", "ie", word) + "th"): number
        for word, number in NUMBER_WORDS.items()
        if word.isalpha() and 1 < number < 100
    }
    ordinals |= {"quarter": 4, "hundredth": 100, "thousandth": 1000, "millionth": 10**6}
    return ordinals | {f"{word}s": number for word, number in ordinals.items()} | {"halves": 2}


_SMALL = _small_words()
_PARTS = _part_words()


class Words(NamedTuple):
    """The words of a text, as far as numbers are written with them."""

    tokens: list[str]
    """The text's words and numbers in order, number words as digits."""
    numbers: frozenset[int]
    """Whole numbers up to 99 in words, and any in digits."""
    scales: frozenset[int]
    """The hundred of `two hundred`."""
    single_scales: frozenset[int]
    """Those with nothing or `one` before them."""
    parts: frozenset[tuple[int, bool]]
    """The denominator of `fifths`, and whether its word is a plural."""
    ratios: frozenset[Fraction]
    """`3 out of 5`."""
    decimals: frozenset[str]
    """The `25` of `point two five`."""
    has_nothing: bool
    """A word for zero that is no number word."""


def is_number_word(token: str) -> bool:
    """True for `hundred`, `fifths` and the like, of which `read_words` makes no digits."""
    return token in _LARGE or token in _PARTS


def read_words(text: str) -> Words:
    """The words of a text in lower case."""
    for wrong, right in _MISSPELLED:
        text = text.replace(wrong, right)
    written = _TOKEN.findall(text)
    tokens = list(_with_digits(written))
    numbers = {int(token) for token in tokens if token.isdecimal() and len(token) <= 15}
    numbers |= {_SMALL[word] for word in written if word in _SMALL}
    scales = {_LARGE[token] for token in tokens if token in _LARGE}
    single = {
        _LARGE[token]
        for before, token in pairwise(["", *tokens])
        if token in _LARGE and (before == "1" or not _is_number(before))
    }
    parts = {(_PARTS[token], token.endswith("s")) for token in tokens if token in _PARTS}
    parts |= {
        (int(tens) + _PARTS[token], token.endswith("s"))
        for tens, token in pairwise(tokens)
        if token in _PARTS and 2 < _PARTS[token] < 10 and tens.isdecimal() and 20 <= int(tens[:3]) < 100
    }
    ratios = {Fraction(int(a), int(b)) for a, b in _RATIO.findall(" ".join(tokens)) if int(b)}
    return Words(
        *(tokens, frozenset(numbers), frozenset(scales), frozenset(single), frozenset(parts)),
        *(frozenset(ratios), frozenset(_decimals(tokens)), not _NOTHING.isdisjoint(written)),
    )


def _decimals(tokens: list[str]) -> Iterator[str]:
    """The digits after each `point`, from its first one on to all of them."""
    for place, token in enumerate(tokens):
        if token == "point":
            digits = ""
            for digit in tokens[place + 1 : place + 1 + MAX_DECIMALS]:
                digits += "0" if digit in {"o", "oh"} else digit
                if not digits.isdecimal():
                    break
                yield digits


def _with_digits(words: list[str]) -> Iterator[str]:
    """The words with number words as digits: `twenty`, `one` as `21`."""
    place = 0
    while place < len(words):
        both = " ".join(words[place : place + 2])
        taken = both if both in _SMALL and " " in both else words[place]
        yield str(_SMALL.get(taken, taken))
        place += 2 if " " in taken else 1


def _is_number(token: str) -> bool:
    return token[:1].isdecimal() or is_number_word(token)


def is_spelled(value: Fraction, words: Words) -> bool:
    """True if a number may be written in words, or in words and digits: `2 hundred`."""
    if value in words.ratios or (value == 0 and words.has_nothing):
        return True
    if value.denominator == 1 and _is_integer_spelled(value.numerator, words):
        return True
    rests = (value, *(value / scale for scale in words.scales))
    return any(_is_part_spelled(rest, words) for rest in rests if rest.denominator > 1)


def _is_integer_spelled(number: int, words: Words) -> bool:
    """`2013`: 2 and `thousand`, and 13; also as 20 and `hundred`."""
    if number in words.numbers:
        return True
    if number >= MAX_SPELLED:
        return False
    return any(
        number >= scale
        and _is_lead_spelled(number // scale, scale, words)
        and (number % scale == 0 or _is_integer_spelled(number % scale, words))
        for scale in words.scales
    )


def _is_lead_spelled(lead: int, scale: int, words: Words) -> bool:
    if lead == 1:
        return scale in words.single_scales
    return lead < (100 if scale <= 100 else 10**6) and _is_integer_spelled(lead, words)


def _is_part_spelled(value: Fraction, words: Words) -> bool:
    """`three fifths`, `two and a half`, `two point five`."""
    if any(_is_fraction_spelled(value, parts, words, is_plural=plural) for parts, plural in words.parts):
        return True
    if int(value) and not _is_integer_spelled(int(value), words):
        return False
    decimals = str(int(value % 1 * 10**MAX_DECIMALS)).zfill(MAX_DECIMALS).rstrip("0")
    return any(_spells_decimals(spelled, decimals) for spelled in words.decimals)


def _spells_decimals(spelled: str, decimals: str) -> bool:
    """True for all of them, or where they do not end for the first two and more."""
    if len(decimals) < MAX_DECIMALS:
        return spelled.rstrip("0") == decimals
    return len(spelled) > 1 and decimals.startswith(spelled)


def _is_fraction_spelled(value: Fraction, parts: int, words: Words, *, is_plural: bool) -> bool:
    if parts % value.denominator:
        return False

    def is_count(count: int) -> bool:
        return not is_plural if count == 1 else _is_integer_spelled(count, words)

    count = int(value * parts)
    whole, rest = divmod(count, parts)
    return is_count(count) or (whole > 0 and _is_integer_spelled(whole, words) and is_count(rest))
