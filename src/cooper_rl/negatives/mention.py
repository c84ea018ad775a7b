"""A verifier without a parser: it looks for the reference answer's value anywhere in the completion (row 11).

It can only reject, and only where the reference answer is a number. Garbage states no answer that the rule
verifier could read, so that it abstains; this one does not. The place of the value does not matter. Of the
question it reads which choice the value is, and to how many digits it may be rounded.
"""

import re
from fractions import Fraction
from itertools import pairwise

from cooper_rl.negatives.choices import names_letter, read_choice
from cooper_rl.schema.data import Verdict
from cooper_rl.verdicts.answers.comparison import NUMBER_WORDS
from cooper_rl.verdicts.answers.numbers import Quantity, parse_quantity
from cooper_rl.verdicts.answers.question import Precision, rate_rounding, read_precision
from cooper_rl.verdicts.answers.text import normalise_answer
from cooper_rl.verdicts.answers.units import SCALES

MAX_CHARS = 20_000
"""Longer completions are not searched: the verdict is an abstention."""

_NUMBER = re.compile(
    r"(?:\d{1,40} ?)?\\d?frac\s?(?:\{-?\d{1,40}\}|\d)\s?(?:\{\d{1,40}\}|\d)"
    r"|(?:\d[\d,]*(?:\.\d+)?|\.\d+)(?:e[-+]?\d{1,3})?(?:\s?/\s?\d{1,40})?"
)
_WORD = re.compile(r"[a-z]+")
_PARTS = frozenset(("half", "third", "thirds", "quarter", "quarters", "fourth", "fourths", "fifth", "fifths"))
_HUNDREDS = frozenset(("hundred", "thousand", "million", "billion"))


def check_mention(question: str, reference_answer: str, completion: str, /) -> Verdict:
    """`incorrect` where a number is the reference answer and its value is written nowhere, else `unparsable`.

    Signs are not compared: `x = -3` mentions 3. Beside a percent sign `50` mentions .5, beside `million`
    `5` mentions 5,000,000. The letter of the question's choice mentions its value, and where the question
    asks for digits, so does each rounding.
    """
    reference = parse_quantity(normalise_answer(reference_answer))
    if reference is None or reference.base is not None or len(completion) > MAX_CHARS:
        return "unparsable"
    text = completion.lower()
    value = abs(reference.value)
    wanted = {value, value * 100, value / 100} if "%" in reference_answer + text else {value}
    wanted |= {value / scale for word, scale in SCALES.items() if word in reference_answer + text}
    precision = read_precision(question)

    def is_written(text: str) -> bool:
        numbers = (number for written in set(_NUMBER.findall(text)) for number in _readings(written))
        return any(
            abs(number.value) in wanted or _is_rounding(reference, number, precision) for number in numbers
        )

    # Also as the answer's own spelling would be read: `1{,}500` and `½` in the chain of thought.
    if is_written(text) or is_written(normalise_answer(completion).lower()):
        return "unparsable"
    choice = read_choice(question, reference_answer)
    if choice is not None and any(names_letter(completion, letter) for letter in choice.letters):
        return "unparsable"
    words = _WORD.findall(text)
    if not _spellings(value).isdisjoint(words):
        return "unparsable"
    spelled = (*words, *(" ".join(both) for both in pairwise(words)))
    return "unparsable" if any(NUMBER_WORDS.get(word) in wanted for word in spelled) else "incorrect"


def _spellings(value: Fraction) -> frozenset[str]:
    """Words of which one stands in a number of this size that is written out: `one half`, `two hundred`."""
    if value.denominator > 1:
        return _PARTS
    return _HUNDREDS if value >= 100 else frozenset()


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
