r"""Hints of a question about its answer (row 3): its choices, its words, and how many digits it asks for.

Choices are `(A) 12 (B) 16`, `A. $\frac12$` on lines of their own, `\textbf{(A)}\ 12`, `\text{A)}\ & 12` in a
table. A letter against a value can only be decided with them, and a rounded value against an exact one only
with the digits asked for.
"""

import re
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from cooper_rl.schema.data import Verdict
from cooper_rl.verdicts.answers.comparison import (
    MIN_DIGITS,
    NEGATION,
    AnswerCheck,
    plain_words,
    shorten,
)
from cooper_rl.verdicts.answers.numbers import Quantity, parse_quantity, rounds_to
from cooper_rl.verdicts.answers.text import normalise_answer
from cooper_rl.verdicts.answers.units import TEXT_COMMAND, known, same_unit

MAX_QUESTION_CHARS = 20_000
_COMMAND = r"\\(?:textbf|text|mathrm|mathbf|textrm)\s?\{\s?"
_MARK = re.compile(
    rf"{_COMMAND}([A-J])[).:]\s?\}}"
    rf"|(?:{_COMMAND})?(?:\(([A-J])\)|(?:(?<=\n)|(?<=[ ,;:]))\(?([A-J])[).:](?=[\s$\\]))(?:\s?\}})?"
)
_LETTER = re.compile(
    r"(?:the )?(?:correct )?(?:option|choice|answer)?(?: is)?:? ?\(?([A-J])[).]?", re.IGNORECASE
)
_SMALL_LETTER = re.compile(r"\s*(?:\([a-j]\)|[a-j][).]?)\s*")
_LETTERS = re.compile(r"\(?[A-J]\)?(?:\s?(?:[,;&]|and)\s?(?:and )?\(?[A-J]\)?)+")
_WITH_CONTENT = re.compile(
    r"(?:[Oo]ption |[Cc]hoice )?(?:\(([A-J])\)[ :.]?\s*(\S.*)|([A-J])[).:]\s+(\S.*))", re.DOTALL
)
_OTHER_CHOICE = re.compile(
    r"(?:\b(?:or|and)\b|[,;/&])\s*\(?[A-J](?:[).:,]|\s*$)|(?:^|(?<=\s))\(?[A-J](?:\)|[.:](?=\s))"
)

_HEDGED = re.compile(r"(?:or|and|not|maybe|perhaps|is (?:not|wrong|incorrect))\b", re.IGNORECASE)


def resolve_choice(reference: str, answer: str, question: str) -> tuple[str, str] | AnswerCheck:
    """Reference answer and answer with a letter replaced by its choice where only the other side is a value.

    A verdict where the question holds no choices, since nobody can know, or where the letter is none of them.
    """
    left, right = (TEXT_COMMAND.sub(r"\1", text) for text in (reference, answer))
    if (_LETTERS.fullmatch(left) is None) != (_LETTERS.fullmatch(right) is None):
        # Which values several letters stand for is not looked up.
        return AnswerCheck("unparsable", f"{shorten(answer)} against {shorten(reference)}: several choices")
    marked = split_choice(right)
    if marked is not None and (_OTHER_CHOICE.search(marked[1]) or _contradicts_letter(*marked, question)):
        return AnswerCheck("unparsable", f"more than one choice: {shorten(answer)}")
    ours = read_letter(left)
    if ours is not None and _SMALL_LETTER.fullmatch(right) and read_options(question):
        right = answer = right.upper()  # `(b)` where the question has choices from A on
    theirs = read_letter(right)
    if ours is not None and theirs is not None:
        return ours, theirs
    if ours is None and theirs is None:
        return _resolve_contents(left, right) or (reference, answer)
    chosen, other = (ours, right) if ours is not None else (str(theirs), left)
    content = split_choice(other)
    if content is not None and ours is not None:
        return reference, f"{content[0]}) {content[1]}"
    if content is not None:
        equal = content[0] == chosen
        return AnswerCheck(
            "correct" if equal else "incorrect", f"{shorten(answer)} against {shorten(reference)}"
        )
    options = read_options(question)
    # Where there are choices, the letter in `\ln x + C` is a variable and names none of them.
    if _could_be_letter(_without_variable(other, chosen) if options else other, chosen):
        return reference, answer
    if not options:
        return AnswerCheck(
            "unparsable", f"{shorten(answer)} against {shorten(reference)}: no choices to read"
        )
    value = options.get(chosen)
    if value is None:
        verdict = "incorrect" if theirs is not None else "unparsable"
        return AnswerCheck(verdict, f"{chosen} is none of the choices {', '.join(options)}")
    for letter, text in options.items():
        if text.casefold() == (normalise_answer(other)).casefold():
            verdict = "correct" if letter == chosen else "incorrect"
            return AnswerCheck(verdict, f"{shorten(other)} is choice {letter}, against {chosen}")
    return (value, answer) if ours is not None else (reference, value)


def _contradicts_letter(letter: str, content: str, question: str) -> bool:
    """True if the text behind a choice's letter hedges or denies it, or is the content of another choice."""
    told = normalise_answer(content).casefold()
    others = (text for option, text in read_options(question).items() if option != letter)
    return _HEDGED.match(content) is not None or told in map(str.casefold, others)


def _resolve_contents(left: str, right: str) -> tuple[str, str] | AnswerCheck | None:
    """`(B) 12` against `12` by content; two with letters are left to the comparison of choices."""
    ours, theirs = split_choice(left), split_choice(right)
    if ours is not None and theirs is not None:
        if ours[0] == theirs[0]:
            return normalise_answer(ours[1]), normalise_answer(theirs[1])
        is_same = normalise_answer(ours[1]) == normalise_answer(theirs[1])
        return AnswerCheck("unparsable" if is_same else "incorrect", f"choice {theirs[0]} against {ours[0]}")
    if ours is not None:
        return normalise_answer(ours[1]), right
    return (left, normalise_answer(theirs[1])) if theirs is not None else None


def _could_be_letter(text: str, letter: str) -> bool:
    """True if an expression may hold the letter as a variable or a name, or names it in words."""
    return re.search(rf"(?<![A-Za-z]){letter}(?![A-Za-z])", text) is not None


def _without_variable(text: str, letter: str) -> str:
    """Text without the letter where it is a term or a factor."""
    return re.sub(rf"(?<=[-+*/=(^])\s?{letter}(?![A-Za-z])", "", text)


def repeats_question(reference: str, answer: str, question: str) -> bool:
    """True for a calculation that the question asks for, in place of its result: `(3 + 4) * 2` for 14."""
    own = re.sub(r"^[A-Za-z]+=", "", _without_spaces(answer)).rstrip("=")
    # Few answers are calculations, and each decoy of a question comes here.
    if _CALCULATION.search(own) is None or parse_quantity(answer) is not None:
        return False
    return own != _without_spaces(reference) and own in _without_spaces(question[-MAX_QUESTION_CHARS:])


_CALCULATION = re.compile(r"[\d)}][-+*/×÷^]+[\d({\\]|\\(?:times|cdot|div)")


def _without_spaces(text: str) -> str:
    return re.sub(r"\s", "", text)


def read_options(question: str) -> dict[str, str]:
    """Letter -> normalised text of its choice; empty where the question holds no choices in order from A."""
    question = "\n" + question[-MAX_QUESTION_CHARS:]
    marks = list(_MARK.finditer(question))
    # The last run of letters in order: `Let A. be ...` before the choices is none of them.
    letters = [mark[1] or mark[2] or mark[3] for mark in marks]
    first = len(letters) - 1 - letters[::-1].index("A") if "A" in letters else len(letters)
    run = letters[first:]
    if len(run) < 2 or run != [chr(ord("A") + place) for place in range(len(run))]:
        return {}
    ends = [mark.start() for mark in marks[first + 1 :]] + [len(question)]
    return {
        letter: normalise_answer(_strip(question[mark.end() : end]))
        for letter, mark, end in zip(run, marks[first:], ends, strict=True)
    }


def _strip(text: str) -> str:
    text = re.sub(r"\\(?:qquad|quad|hspace\{[^{}]{0,20}\}|end\{[a-z]{1,9}\*?\})|\\\\|\\(?=\s)", " ", text)
    first, *_ = re.split(r"\n\n|(?<=[a-z\d$])\.\s+(?=[A-Z])", text.strip(" \n\t&"), maxsplit=1)
    text = first.strip(" \n\t,;&")
    return text[:-1] if text.count("$") == 1 and text.endswith("$") else text


def read_letter(text: str) -> str | None:
    """The choice that an answer without commands names, `(B)` or `option B`; else None."""
    found = _LETTER.fullmatch(text.strip(" .*"))
    return found[1].upper() if found and found[1].isupper() else None


def split_choice(text: str) -> tuple[str, str] | None:
    """Letter and content of `(B) 12` or `B) 12`; None when the answer is anything else."""
    found = _WITH_CONTENT.fullmatch(text.strip())
    return (found[1] or found[3], found[2] or found[4]) if found else None


def is_short_for(reference: str, answer: str, question: str) -> bool:
    """True if two answers in words differ only by words that the question has already said.

    `iOS` says as much as `In the iOS department there are more employees` where the question asks in which
    department more employees work. The shorter one must say something that the question does not, since
    a name from the question may be either of two.
    """
    if not question:
        return False
    pair = [plain_words(text) or "" for text in (reference, answer)]
    if not all(pair) or any(NEGATION.search(words) for words in pair):
        return False
    shorter, longer = sorted(pair, key=lambda words: len(_content(words)))
    short, long = _content(shorter), _content(longer)
    told = set(_content(question[-MAX_QUESTION_CHARS:].lower()))
    if not short or not _stands_apart(short, longer):
        return False
    left_out = Counter(long) - Counter(short)
    is_news = any(word not in told for word in short)
    return is_news and left_out.keys() <= told and _LIMITING.isdisjoint(long)


def _stands_apart(short: Sequence[str], sentence: str) -> bool:
    """True if no word of a sentence qualifies the words of a short answer: `negative`, `half`, `at most`.

    Words may stand before it up to `is`, and one noun after it, or a clause.
    """
    words = " ".join(_stem(word) for word in _WORD.findall(sentence[: MAX_SENTENCE_CHARS + 1]))
    joining = rf"(?:(?:{'|'.join(sorted(_JOINING))}) )*"
    kept = f" {joining}".join(map(re.escape, short))
    before = rf"(?:.* (?:is|are|was|were|be) )?{joining}"
    after = rf"(?: {joining}\S+)?(?: (?:is|are|was|were|there) .*)?"
    return len(sentence) <= MAX_SENTENCE_CHARS and re.fullmatch(before + kept + after, words) is not None


MAX_SENTENCE_CHARS = 300


def _content(text: str) -> list[str]:
    """Words without those that only join others, and without a plural's s."""
    return [_stem(word) for word in _WORD.findall(text) if word not in _JOINING]


def _stem(word: str) -> str:
    return word if word in _JOINING else word.removesuffix("'s").rstrip("s") or word


_WORD = re.compile(r"[^\W\d_]+(?:'[a-z]+)?")


_JOINING = frozenset(
    (
        *("a", "an", "the", "is", "are", "was", "were", "be", "it", "there", "this", "that"),
        *("in", "on", "at", "of", "to", "by", "do", "does", "will"),
    )
)
_LIMITING = frozenset((*("no", "only", "if", "when", "except", "without", "with", "whose", "than", "but"),))
"""Words after which what is left out may matter."""


class Precision(NamedTuple):
    """The digits that a question asks for: one of the two numbers is given."""

    decimals: int | None
    """Digits after the point; negative for tens and hundreds."""
    digits: int | None
    """Significant digits, at least."""
    unit: str = ""
    """In which it asks for them; an answer in another one is left to the comparison of units."""
    is_named: bool = False
    """The question names the significant digits, so that zeros may fill a number up: `1,230,000`."""


# All completions of a group have one question.
@lru_cache(maxsize=256)
def read_precision(question: str, *, reads_units: bool = True) -> Precision | None:
    """The precision that the question asks for; None where it names none, or asks for the exact value.

    `reads_units`: a question for a measured quantity, `how many metres`, asks for three digits.
    """
    text = question[-MAX_QUESTION_CHARS:].lower().replace("$", "")
    if _EXACT.search(text):
        return None
    share = "%" if _PERCENT_ASKED.search(text) else ""
    if found := _NEAREST.search(text):
        nearest = _nearest(found[1].replace("-", " "))
        return nearest and nearest._replace(unit=share)
    if found := _PLACES.search(text):
        count = _COUNTS.get(found[1]) if found[1] in _COUNTS else int(found[1])
        is_significant = (found[2] or found[3] or "").startswith("s")
        return Precision(None, count, "", True) if is_significant else Precision(count, None, share)
    if _ABOUT.search(text):
        return Precision(None, MIN_DIGITS)
    unit = _measured_unit(text) if reads_units else None
    return Precision(None, MIN_DIGITS, unit) if unit is not None else None


def _measured_unit(text: str) -> str | None:
    """The unit of `how many metres` and `what speed in km/h`: a measure is as exact as its digits."""
    plain = " ".join(TEXT_COMMAND.sub(r" \1 ", text).split()).replace(" / ", "/")
    for match in _UNIT_ASKED.finditer(plain):
        name = match[1] or match[2]
        unit = known(name)
        if unit is not None and unit.dimension.split("^")[0] in _MEASURED:
            return name
    return None


def _nearest(place: str) -> Precision | None:
    step = re.fullmatch(r"(?:0?\.(0*1)|(10*))", place.split()[0])
    if step:
        return Precision(len(step[1]) if step[1] else 1 - len(step[2]), None)
    words = place.split()
    for name in (" ".join(words[:2]), words[0]):
        if name.rstrip("s") in _PLACE_NAMES:
            return Precision(_PLACE_NAMES[name.rstrip("s")], None)
    return Precision(0, None) if known(words[0]) is not None else None


_EXACT = re.compile(r"\bexact(?:ly)?\b|\bnot (?:round|approximate|use)\b|\bsimplest (?:radical )?form\b")
_NEAREST = re.compile(r"\bto the nearest ((?:0?\.0{0,9}1|10{0,9}|[a-z]{2,20})(?:[ -][a-z]{2,20})?)")
_PLACES = re.compile(
    r"\b(?:to|rounded to|with|correct to|accurate to) (\d|one|two|three|four|five|six) ?"
    r"(?:(?<= )(?:(decimal|sig(?:nificant|\.)?) )?(?:places?|digits?|figures?|figs?|decimals?)\b"
    r"|d\.? ?p\b|(s\.? ?f)\b)"
)
_PERCENT_ASKED = re.compile(r"\bnearest (?:[a-z]{1,20} ){0,4}percent|\b(?:in|as a|what) percent(?:age)?\b")
_ABOUT = re.compile(r"\bapproximate(?:ly)?\b|\babout (?:how|what)\b|\brounded\b|\bround your answer\b")
_UNIT_ASKED = re.compile(
    r"\bhow many ((?:(?:square|cubic) )?[a-z]{1,12}(?:/[a-z]{1,6})?)(?![a-z])"
    r"|\bin ((?:(?:square|cubic) )?[a-z]{1,12}(?:/[a-z]{1,6}| per [a-z]{1,8})?(?:\^[23])?) ?[?.]"
)
_MEASURED = frozenset(
    ("length", "area", "volume", "mass", "time", "energy", "power", "force", "pressure", "voltage", "current")
)
_COUNTS = {"one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6}
_PLACE_NAMES = {
    "ten thousandth": 4,
    "thousandth": 3,
    "hundredth": 2,
    "tenth": 1,
    "cent": 2,
    "penny": 2,
    "whole": 0,
    "integer": 0,
    "unit": 0,
    "one": 0,
    "percent": 0,
    "degree": 0,
    "dollar": 0,
    "ten": -1,
    "hundred": -2,
    "thousand": -3,
}


def round_alike(left: Quantity, right: Quantity, precision: Precision) -> bool:
    """True if two numbers have a rounding in common at the digits that the question asks for."""
    if left.base or right.base or (left.unit and right.unit and not same_unit(left.unit, right.unit)):
        return False
    decimals = precision.decimals
    if decimals is None:
        assert precision.digits is not None, "one of the two is given"
        decimals = _decimals_for(left.value, precision.digits)
    step = Fraction(10) ** -decimals
    lower = left.value // step * step
    return any(
        rounds_to(left.value, each, decimals) and rounds_to(right.value, each, decimals)
        for each in (lower, lower + step)
    )


def _decimals_for(value: Fraction, num_digits: int) -> int:
    """Decimals with which a number has so many significant digits; none where its whole part has them."""
    decimals = 0
    while 0 < abs(value) * 10**decimals < 10 ** (num_digits - 1):
        decimals += 1
    return decimals


def rate_rounding(reference: Quantity, answer: Quantity, precision: Precision) -> Verdict | None:
    """Correct: the answer is the reference answer, rounded to the digits that the question asks for.

    Unparsable: rounded to fewer, where the question names a unit and no digits. None: no rounding of it.
    """
    is_fraction = answer.decimals is None and not answer.digits
    is_scaled = answer.scale > 1 and precision.decimals is None and not precision.is_named
    if is_fraction or not answer.value or is_scaled or reference.base or answer.base:
        return None
    if precision.unit == "%":
        return _rate_share(reference, answer, precision.decimals or 0)
    for unit in (reference.unit, precision.unit):
        if unit and answer.unit and not same_unit(unit, answer.unit):
            return None
    if precision.decimals is not None:
        return "correct" if rounds_to(reference.value, answer.value, precision.decimals) else None
    assert precision.digits is not None, "one of the two is given"
    if precision.is_named and _fills_up(answer) and _has_digits(reference, answer, precision.digits):
        return "correct"
    written = answer.decimals or 0
    num_digits = len(str(abs(int(answer.value * 10**written))))
    if answer.scale > 1 or not rounds_to(reference.value, answer.value, written):
        return None
    if num_digits >= precision.digits:
        return "correct"
    is_short = precision.unit and num_digits > 1 and reference.value != answer.value
    return "unparsable" if is_short else None


def _rate_share(reference: Quantity, answer: Quantity, decimals: int) -> Verdict | None:
    """`33%` for .3333 where the question asks for percent; without its sign `33` and `.33` may be meant."""
    value, sign = reference.value, answer.unit == "%"
    if answer.unit and reference.unit and not same_unit(answer.unit, reference.unit):
        return None
    if rounds_to(value, answer.value, decimals):
        return "correct"
    if sign and reference.unit != "%":
        return "correct" if rounds_to(value * 100, answer.value, decimals) else None
    if sign or answer.unit:
        return None
    share = value / 100 if reference.unit == "%" else value
    may_be = rounds_to(share * 100, answer.value, decimals) or rounds_to(share, answer.value, decimals + 2)
    return "unparsable" if may_be else None


def _fills_up(answer: Quantity) -> bool:
    """True for a number whose last zeros, or whose power of ten, say nothing of its digits."""
    if answer.scale > 1:
        return True
    return answer.decimals is None and (
        answer.digits.endswith("0") or Fraction(answer.digits) != abs(answer.value)
    )


def _has_digits(reference: Quantity, answer: Quantity, num_digits: int) -> bool:
    """True if an answer is the reference answer at so many significant digits, or at some more."""
    whole = len(str(abs(int(answer.value))))
    decimals = _decimals_for(answer.value, num_digits) or min(0, num_digits - whole)
    return any(
        rounds_to(reference.value, answer.value, places) for places in range(decimals, decimals + num_digits)
    )
