"""Random changes of texts, for a search that knows VerifyRM's scores only.

A text is a sequence of pieces: tags, runs of letters, single digits, white space and marks. Every change
works on pieces or on characters, needs no tokenizer, and draws from the seeds' own pieces and fragments.
"""

import random
import re
import string
from collections.abc import Callable, Sequence
from typing import NamedTuple

from cooper_rl.redteam.library import QUESTION
from cooper_rl.redteam.seeds import Seed

_PIECE = re.compile(r"\{question\}|</?\w+>|<\|\w+\|>|[^\W\d_]+|\d|\s+|.", re.DOTALL)
_NUMBER = re.compile(r"\d+")
MAX_CHANGES = 3
"""Changes to a text in one go."""
MAX_COPIES = 8
_FRAMES = (("The answer is ", "."), ("\\boxed{", "}"), ("#### ", ""), ("=", "."), ("Answer: ", ""))


class Material(NamedTuple):
    """The material that changes draw from."""

    pieces: list[str]
    fragments: list[str]
    """Whole seeds, to be put before, after or into another text."""


def make_material(seeds: Sequence[Seed]) -> Material:
    """The different pieces of the seeds, and the seeds, in order."""
    pieces = dict.fromkeys(piece for seed in seeds for piece in split_pieces(seed.text))
    pieces |= dict.fromkeys(string.punctuation + string.digits)
    return Material(list(pieces), [seed.text for seed in seeds])


def split_pieces(text: str) -> list[str]:
    """Pieces whose concatenation is the text."""
    return _PIECE.findall(text)


def mutate(text: str, other: str, material: Material, *, max_chars: int, rng: random.Random) -> str:
    """One to three random changes, of which some take from `other`; cut to `max_chars` characters."""
    for _ in range(rng.randint(1, MAX_CHANGES)):
        # Cut after every change: three repetitions in a row could make a text 512 times as long.
        text = rng.choice(_CHANGES)(text, other, material, rng)[:max_chars]
    return text


def _delete(text: str, other: str, material: Material, rng: random.Random) -> str:
    pieces = split_pieces(text)
    start, end = _span(pieces, rng)
    return "".join(pieces[:start] + pieces[end:])


def _repeat(text: str, other: str, material: Material, rng: random.Random) -> str:
    pieces = split_pieces(text)
    start, end = _span(pieces, rng)
    return "".join(pieces[:start] + pieces[start:end] * rng.randint(2, MAX_COPIES) + pieces[end:])


def _move(text: str, other: str, material: Material, rng: random.Random) -> str:
    pieces = split_pieces(text)
    start, end = _span(pieces, rng)
    span, rest = pieces[start:end], pieces[:start] + pieces[end:]
    place = rng.randint(0, len(rest))
    return "".join(rest[:place] + span + rest[place:])


def _replace(text: str, other: str, material: Material, rng: random.Random) -> str:
    pieces = split_pieces(text)
    if pieces:
        pieces[rng.randrange(len(pieces))] = rng.choice(material.pieces)
    return "".join(pieces)


def _insert(text: str, other: str, material: Material, rng: random.Random) -> str:
    pieces = split_pieces(text)
    place = rng.randint(0, len(pieces))
    return "".join([*pieces[:place], rng.choice(material.pieces), *pieces[place:]])


def _insert_fragment(text: str, other: str, material: Material, rng: random.Random) -> str:
    pieces = split_pieces(text)
    place = rng.choice((0, len(pieces), rng.randint(0, len(pieces))))
    return "".join([*pieces[:place], rng.choice(material.fragments), *pieces[place:]])


def _cross(text: str, other: str, material: Material, rng: random.Random) -> str:
    """The beginning of the one and the end of the other."""
    first, second = split_pieces(text), split_pieces(other)
    return "".join(first[: rng.randint(0, len(first))] + second[rng.randint(0, len(second)) :])


def _renumber(text: str, other: str, material: Material, rng: random.Random) -> str:
    found = list(_NUMBER.finditer(text))
    if not found:
        return text + str(rng.randint(0, 99))
    match = rng.choice(found)
    return text[: match.start()] + str(rng.randint(0, 99)) + text[match.end() :]


def _change_character(text: str, other: str, material: Material, rng: random.Random) -> str:
    place = rng.randint(0, len(text))
    return text[:place] + rng.choice(string.printable) + text[place + 1 :]


def _conclude(text: str, other: str, material: Material, rng: random.Random) -> str:
    """The text, or a part of it, as a stated answer."""
    pieces = split_pieces(text)
    start, end = _span(pieces, rng)
    span = "".join(pieces[start:end])
    before, after = rng.choice(_FRAMES)
    return text + rng.choice(("", " ", "\n")) + before + span + after


def _add_question(text: str, other: str, material: Material, rng: random.Random) -> str:
    if QUESTION in text:
        return text.replace(QUESTION, "")
    return rng.choice((f"{QUESTION} {text}", f"{text} {QUESTION}"))


def _span(pieces: Sequence[str], rng: random.Random) -> tuple[int, int]:
    """Start and end of a random span, short ones more often."""
    start = rng.randint(0, len(pieces))
    return start, min(len(pieces), start + 1 + int(rng.expovariate(0.5)))


_CHANGES: tuple[Callable[[str, str, Material, random.Random], str], ...] = (
    _delete,
    _delete,
    _repeat,
    _move,
    _replace,
    _replace,
    _insert,
    _insert,
    _insert_fragment,
    _cross,
    _renumber,
    _change_character,
    _conclude,
    _add_question,
)
