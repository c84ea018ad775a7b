"""A verifier without a parser: it looks for the reference answer's value anywhere in the completion (row 11).

It can only reject, and only where the reference answer is a number. Garbage states no answer that the rule
verifier could read, so that it abstains; this one does not. The place of the value does not matter. Of the
question it reads which choice the value is, and to how many digits it may be rounded.
"""

import re
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache

from cooper_rl.negatives.choices import names_letter, read_choice
from cooper_rl.negatives.spelled import is_spelled, read_words
from cooper_rl.schema.data import Verdict
from cooper_rl.verdicts.answers.arithmetic import evaluate
from cooper_rl.verdicts.answers.numbers import Quantity, parse_quantity, rounds_to
from cooper_rl.verdicts.answers.question import Precision, rate_rounding, read_precision
from cooper_rl.verdicts.answers.text import normalise_answer
from cooper_rl.verdicts.answers.units import SCALES

MAX_CHARS = 20_000
"""Longer completions are not searched: the verdict is an abstention."""

_NUMBER = re.compile(
    r"(?:\d{1,40} ?)?\\d?frac\s?(?:\{-?\d{1,40}\}|\d)\s?(?:\{\d{1,40}\}|\d)"
    r"|(?:\d[\d,]*(?:\.\d+)?|\.\d+)(?:e[-+]?\d{1,3})?(?:\s?/\s?\d{1,40})?"
)
_GROUPED = re.compile(r"(?<![\d.,'_])\d{1,3}(?:(?:'\d{3})+|(?:_\d{3})+|(?:\.\d{3})+|(?:,\d\d)+,\d{3})(?!\d)")
_DECIMAL_COMMA = re.compile(r"(?<![\d.,])(\d{1,15}),(\d{1,15})(?![\d,])")
_MIXED = re.compile(r"(?<![\d.])(\d{1,15})(?: |-| and )(\d{1,15})/(\d{1,15})")
_POWER = re.compile(
    r"(?:(\d{1,15}(?:\.\d{1,15})?) ?(?:\\times|\\cdot|\*|x) ?)?"
    r"(?<![\d.])(\d{1,15}(?:\.\d{1,15})?) ?(?:\^|\*\*) ?[{(]? ?(-?\d{1,3})"
)
_SHORT = re.compile(r"(\d{1,15}(?:\.\d{1,15})?) ?(k|m(?:n|io|il|ln)?|b(?:n|il|ln)?|tn?)(?![a-z])")
_SHORT_SCALES = {"k": 10**3, "m": 10**6, "b": 10**9, "t": 10**12}
_PERCENT = re.compile(r"%|\bper ?cent|\bpct\b")
ROUNDED_DECIMALS = range(-12, 7)
"""Places at which roundings of the reference answer are looked for in words."""


def check_mention(question: str, reference_answer: str, completion: str, /) -> Verdict:
    """`incorrect` where a number is the reference answer and its value is written nowhere, else `unparsable`.

    Signs are not compared: `x = -3` mentions 3. Where percent are meant `50` mentions .5, beside `million`
    `5` mentions 5,000,000. The letter of the question's choice mentions its value, and where the question
    asks for digits, so does each rounding.
    """
    reference = parse_quantity(normalise_answer(reference_answer))
    if reference is None or reference.base is not None or len(completion) > MAX_CHARS:
        return "unparsable"
    text = completion.lower()
    value = abs(reference.value)
    values = (
        {value, value * 100, value / 100}
        if _PERCENT.search(f"{question} {reference_answer} {text}".lower())
        else {value}
    )
    scales = {scale for word, scale in SCALES.items() if word in reference_answer + text}
    wanted = values | {value / scale for scale in scales}
    precision = read_precision(question)

    def is_written(text: str) -> bool:
        numbers = (number for written in set(_NUMBER.findall(text)) for number in _readings(written))
        return any(
            abs(number.value) in wanted or _is_rounding(reference, number, precision) for number in numbers
        ) or any(number in wanted for number in _other_readings(text))

    # Also as the answer's own spelling would be read: `1{,}500` and `½` in the chain of thought.
    normalised = normalise_answer(completion).lower()
    if is_written(text) or is_written(normalised):
        return "unparsable"
    choice = read_choice(question, reference_answer)
    if choice is not None and any(names_letter(completion, letter) for letter in choice.letters):
        return "unparsable"
    words = read_words(f"{text}\n{normalised}")
    spelled = values | _roundings(reference, precision)
    return "unparsable" if any(is_spelled(number, words) for number in spelled) else "incorrect"


# All completions of a problem have one question.
@lru_cache(maxsize=4096)
def _roundings(reference: Quantity, precision: Precision | None) -> frozenset[Fraction]:
    """The numbers to which the question lets the reference answer be rounded."""
    if precision is None:
        return frozenset()
    found: set[Fraction] = set()
    for decimals in ROUNDED_DECIMALS:
        step = Fraction(10) ** -decimals
        lower = abs(reference.value) // step * step
        found |= {each for each in (lower, lower + step) if rounds_to(abs(reference.value), each, decimals)}
    return frozenset(
        each for each in found if each and _is_rounding(reference, _written_out(each), precision)
    )


def _written_out(value: Fraction) -> Quantity:
    """A decimal number in as few digits as it takes."""
    decimals = next(places for places in range(7) if (value * 10**places).denominator == 1)
    return Quantity(value, "", decimals or None, None, str(int(value)))


def _is_rounding(reference: Quantity, number: Quantity, precision: Precision | None) -> bool:
    """True if a number is the reference answer at the digits that the question asks for, or may be."""
    if precision is None:
        return False
    reference, number = (each._replace(value=abs(each.value)) for each in (reference, number))
    return rate_rounding(reference, number, precision) is not None


def _readings(written: str) -> list[Quantity]:
    """A number, and the numbers that it is written with: `8/2` mentions 4, 8 and 2, `1,2` both 1 and 2."""
    parts = [written.strip().rstrip(","), *re.findall(r"\d+(?:\.\d+)?", written)]
    return [quantity for part in parts if (quantity := parse_quantity(part)) is not None]


def _other_readings(text: str) -> Iterator[Fraction]:
    """Numbers in other people's digits: `1'500`, `1.500`, `0,25`, `2 1/2`, `1.5k`, `3x10^5`."""
    for grouped in _GROUPED.findall(text):
        yield Fraction(re.sub(r"\D", "", grouped))
    for whole, decimals in _DECIMAL_COMMA.findall(text):
        yield Fraction(f"{whole}.{decimals}")
    for whole, numerator, denominator in _MIXED.findall(text):
        if int(denominator):
            yield int(whole) + Fraction(int(numerator), int(denominator))
    for number, letter in _SHORT.findall(text):
        yield Fraction(number) * _SHORT_SCALES[letter[0]]
    for factor, base, exponent in set(_POWER.findall(text)):
        power = evaluate(f"{base}^({exponent})")
        if power is not None:
            yield power
            yield power * Fraction(factor or 1)
