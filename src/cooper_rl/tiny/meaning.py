"""The final answer that a text of the laptop world states, whatever the format.

Used by the judge (is it right?) and the assistant (where must it be changed?). The standard is what a person
would accept: `10`, `10.0`, `ten` and `Ten apples` are one answer, a missing final period is no fault, and a
text that names two different answers names none. The steps before the answer are not judged, as in the
paper's labels.
"""

import re
from typing import NamedTuple

_UNITS: list[str] = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
]
_TENS: list[str] = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]

_WORD = (
    rf"(?:{'|'.join(_TENS)})(?:[ -](?:{'|'.join(_UNITS[1:10])}))?\b"
    rf"|(?:{'|'.join(sorted(_UNITS, key=len, reverse=True))})\b"
)
NUMBER = re.compile(
    rf"(?<![\w.])-?\d+(?:\.\d+)?(?!\d)|(?:\b|(?<=is)|(?<=has)|(?<=have)|(?<=pays))(?:{_WORD})", re.IGNORECASE
)
"""A number in digits or in words; `paysten` is read, since a missing space is no fault, `often` is not."""

_MARKED = re.compile(
    rf"(?:####\s*|\\boxed\s*\{{\s*|\banswer(?:\s+is|\s*:|\s*=)\s*)(?P<number>{NUMBER.pattern})", re.IGNORECASE
)


class Conclusion(NamedTuple):
    """The part of a text that states the answer."""

    values: tuple[float, ...]
    """Different values stated as the answer, in order; empty when there is none."""
    spans: tuple[tuple[int, int], ...]
    """The place of every statement of an answer in the text, in order."""


def spell(number: int) -> str:
    """0..99 in words: `forty-two`."""
    if not 0 <= number <= 99:
        raise ValueError(f"{number} is outside 0..99, the laptop world's numbers; spell a smaller one")
    if number < 20:
        return _UNITS[number]
    tens, unit = divmod(number, 10)
    return _TENS[tens - 2] + (f"-{_UNITS[unit]}" if unit else "")


def read_number(text: str) -> float:
    """The value of a text that `NUMBER` matched."""
    words = re.split(r"[ -]", text.lower())
    if words[0] in _TENS:
        tens = 20 + 10 * _TENS.index(words[0])
        return float(tens + (_UNITS.index(words[1]) if len(words) > 1 else 0))
    if words[0] in _UNITS:
        return float(_UNITS.index(words[0]))
    return float(text)


def find_conclusion(text: str) -> Conclusion:
    """The stated answers: all marked ones (`####`, boxed, `answer is`) and every number after the last `=`.

    When nothing is stated after the last equation, its result is the answer, as a person would read
    `7-2=5;5*2=10.`; a text without any equation states what its numbers say.
    """
    last_equation = text.rfind("=")
    closing = last_equation + 1
    result = NUMBER.match(text, closing + len(text[closing:]) - len(text[closing:].lstrip()))
    if last_equation >= 0 and result is not None:
        closing = result.end()
    spans = [match.span("number") for match in _MARKED.finditer(text, 0, closing)]
    spans += [match.span() for match in NUMBER.finditer(text, closing)]
    if not spans and last_equation >= 0 and result is not None:
        spans = [result.span()]
    values = [read_number(text[start:end]) for start, end in spans]
    return Conclusion(tuple(dict.fromkeys(values)), tuple(spans))
