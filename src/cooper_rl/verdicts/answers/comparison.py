r"""Comparing two answers exactly (row 3): numbers as fractions, units, ratios, choices, words.

Works on normalised text, without sympy. An answer of another kind than the reference answer is left to lists
and intervals (`structure.py`) and to expressions (`symbols.py`).
"""

import re
from fractions import Fraction
from typing import NamedTuple

from cooper_rl.config.data import AnswerPolicy
from cooper_rl.schema.data import Verdict
from cooper_rl.verdicts.answers.numbers import Quantity, parse_quantity, rounds_to
from cooper_rl.verdicts.answers.units import TEXT_COMMAND, is_converted, is_generic, is_word, known, same_unit


class AnswerCheck(NamedTuple):
    """A rule verdict and what it rests on."""

    verdict: Verdict
    reason: str


def compare_exactly(reference: str, answer: str, policy: AnswerPolicy) -> AnswerCheck | None:
    """Compare two normalised answers where that needs no algebra; None when it does."""
    if not answer:
        return AnswerCheck("unparsable", "the answer is empty")
    clock = _compare_clocks(reference, answer)
    if clock is not None:
        return clock
    if reference != answer and (doubt := _find_doubt(reference, answer)):
        return AnswerCheck("unparsable", doubt)
    left, right = parse_quantity(reference), read_quantity(answer, policy)
    if left is not None and right is not None:
        return _compare_quantities(left, right, policy)
    if (chain := _CHAIN.fullmatch(reference)) and answer.count(",") >= 2:
        items = [_squeezed(item) for item in answer.split(",")]
        if [_squeezed(item) for item in re.split(r"<|>", chain[0])] == items:
            return AnswerCheck("correct", f"{shorten(answer)} is in the order of {shorten(reference)}")
    ratio = _compare_ratios(reference, answer)
    if ratio is not None:
        return ratio
    if _squeezed(reference) == _squeezed(answer):
        return AnswerCheck("correct", f"same text {shorten(answer)}")
    return _compare_words(reference, answer)


def _find_doubt(reference: str, answer: str) -> str | None:
    """Numbers that are equal if a point or a comma is read otherwise, and temperatures on two scales."""
    degrees = _DEGREES.fullmatch(reference), _DEGREES.fullmatch(answer)
    if degrees[0] and degrees[1] and degrees[0][1] != degrees[1][1]:
        return "temperatures on two scales"
    groups = [text.split(",") for text in (reference, answer) if _GROUPED.fullmatch(text)]
    if len(groups) == 2 and sorted(groups[0]) == sorted(groups[1]):
        return "the commas may separate numbers"
    if _POINTED.fullmatch(reference) or _POINTED.fullmatch(answer):
        bare = [re.sub(r"[.,](?=\d{3})", "", text) for text in (reference, answer)]
        return "a point may group thousands" if bare[0] == bare[1] else None
    return None


_DEGREES = re.compile(r"-?\d{1,9}(?:\.\d{1,9})? ?°? ?([CF])")
_CHAIN = re.compile(r"[^<>,]{1,30}(?:(?:<[^<>,]{1,30}){2,20}|(?:>[^<>,]{1,30}){2,20})")
_GROUPED = re.compile(r"\d{1,3}(?:,\d{3}){1,9}")
_POINTED = re.compile(r"[1-9]\d{0,2}(?:\.\d{3}){1,9}")


def shorten(text: str) -> str:
    """Text for a reason: quoted, at most 80 characters."""
    return repr(text if len(text) <= 80 else text[:77] + "...")


def read_quantity(text: str, policy: AnswerPolicy) -> Quantity | None:
    """One number with at most one unit, also in words where the policy reads them."""
    quantity = parse_quantity(text)
    if quantity is None and policy.number_words:
        value = NUMBER_WORDS.get(plain_words(text) or "")
        if value is not None:
            return Quantity(Fraction(value), "", None, None, "")
    return quantity


def _compare_quantities(reference: Quantity, answer: Quantity, policy: AnswerPolicy) -> AnswerCheck:
    if reference.base != answer.base:
        return _compare_bases(reference, answer)
    if reference.unit and answer.unit and not same_unit(reference.unit, answer.unit):
        return _compare_units(reference, answer, policy)
    if reference.value == answer.value:
        return AnswerCheck("correct", f"{_show(answer)} equals the reference answer")
    if is_percentage(reference, answer):
        return AnswerCheck("correct", f"{_show(answer)} equals the reference answer as a percentage")
    if policy.reference_rounding and _rounds_to(reference, answer):
        return AnswerCheck("correct", f"{_show(answer)} rounds to the reference answer {_show(reference)}")
    if reference.scale != answer.scale and reference.value * answer.scale == answer.value * reference.scale:
        return AnswerCheck(
            "unparsable", "the same number, but only one side counts dozens, thousands or millions"
        )
    if _is_nearly(reference, answer):
        return AnswerCheck("unparsable", f"{_show(reference)} may be {_show(answer)} rounded carelessly")
    if _is_coarser(reference, answer):
        return AnswerCheck("unparsable", f"{_show(answer)} may be {_show(reference)} rounded")
    if _is_finer(reference, answer):
        return AnswerCheck("unparsable", f"{_show(reference)} may be {_show(answer)} rounded")
    bare, united = (answer, reference) if reference.unit else (reference, answer)
    if not bare.unit and is_converted(united.value, united.unit, bare.value):
        return AnswerCheck("unparsable", f"{_show(answer)} is {_show(reference)} if that is in another unit")
    return AnswerCheck("incorrect", f"{_show(answer)} is not {_show(reference)}")


MIN_DIGITS = 3
"""Significant digits from which a rounding may be meant."""


def _is_coarser(reference: Quantity, answer: Quantity) -> bool:
    """85.71 for 600/7, 33.33 % for 1/3 and 118 % for 117.95 %: only the question tells whether that many
    digits do."""
    value, decimals = reference.value, reference.decimals
    if answer.unit == "%" and not reference.unit:
        value, decimals = value * 100, None if decimals is None else decimals - 2
    elif (reference.unit == "%") != (answer.unit == "%"):
        return False
    if value.denominator == 1 or not answer.digits:
        return False
    written = answer.decimals or 0
    if decimals is not None and written >= decimals:
        return False
    num_digits = len(answer.digits.lstrip("0")) + written if answer.digits.strip("0") else written
    distance = abs(answer.value - value) / answer.scale
    return num_digits >= MIN_DIGITS and distance <= Fraction(1, 10**written)


def _is_finer(reference: Quantity, answer: Quantity) -> bool:
    """.5941 for .59: only the question tells whether the reference answer was rounded."""
    if reference.decimals is None or answer.decimals is None or reference.value.denominator == 1:
        return False
    is_alike = (reference.unit == "%") == (answer.unit == "%")
    is_finer = answer.decimals > reference.decimals >= 2
    return is_alike and is_finer and rounds_to(answer.value, reference.value, reference.decimals)


def _is_nearly(reference: Quantity, answer: Quantity) -> bool:
    """A fraction less than a unit of the reference answer's last decimal, and .2 %, away from it.

    With one decimal and three digits, a fraction that rounds to it.
    """
    if not reference.decimals or answer.decimals is not None or not reference.value:
        return False
    is_fraction = answer.value.denominator > 1 and reference.unit == answer.unit
    if reference.decimals < MIN_DIGITS - 1:  # 33.3 for 100/3
        has_digits = abs(reference.value) >= 10 ** (MIN_DIGITS - 1 - reference.decimals)
        return is_fraction and has_digits and rounds_to(answer.value, reference.value, reference.decimals)
    reach = min(Fraction(1, 10 ** (reference.decimals or 0)), abs(reference.value) / 500)
    return is_fraction and abs(answer.value - reference.value) < reach


def is_percentage(reference: Quantity, answer: Quantity) -> bool:
    """`50%` is .5; which of the two carries the sign does not matter."""
    if (reference.unit == "%") == (answer.unit == "%"):
        return False
    percent, plain = (reference, answer) if reference.unit == "%" else (answer, reference)
    return percent.value == plain.value * 100


def _rounds_to(reference: Quantity, answer: Quantity) -> bool:
    """An exact answer whose rounding, at the reference answer's own decimals, is the reference answer."""
    if reference.decimals is None or reference.decimals < 2 or answer.decimals is not None:
        return False
    if reference.value == 0:
        return False  # Whatever is small enough would do.
    value = answer.value * 100 if reference.unit == "%" and answer.unit != "%" else answer.value
    return rounds_to(value, reference.value, reference.decimals)


def _compare_bases(reference: Quantity, answer: Quantity) -> AnswerCheck:
    if reference.base is not None and answer.base is not None:
        if (
            reference.value == answer.value
            and reference.base != answer.base
            and reference.digits == answer.digits
        ):
            return AnswerCheck("unparsable", "the same digit in two bases")
        verdict: Verdict = "correct" if reference.value == answer.value else "incorrect"
        return AnswerCheck(verdict, f"compared by value in bases {reference.base} and {answer.base}")
    if reference.digits == answer.digits and reference.digits:
        return AnswerCheck("correct", "the same digits, one side leaves out the base")
    if reference.value == answer.value:
        return AnswerCheck("unparsable", "the same value, but only one side names its base")
    return AnswerCheck("incorrect", "other digits and another value")


def _compare_units(reference: Quantity, answer: Quantity, policy: AnswerPolicy) -> AnswerCheck:
    left, right = known(reference.unit), known(answer.unit)
    if is_generic(reference.unit) or is_generic(answer.unit):
        verdict: Verdict = "correct" if reference.value == answer.value else "incorrect"
        return AnswerCheck(verdict, f"{_show(answer)} against {_show(reference)}, one unit says nothing")
    if left is not None and right is not None and left.dimension == right.dimension and policy.convert_units:
        equal = reference.value * left.factor == answer.value * right.factor
        return AnswerCheck(
            "correct" if equal else "incorrect", f"{_show(answer)} converted to {reference.unit}"
        )
    is_clear = all(
        unit is not None or is_word(each.unit) for unit, each in ((left, reference), (right, answer))
    )
    is_same_kind = left is not None and right is not None and left.dimension == right.dimension
    if reference.value != answer.value and is_clear and not is_same_kind:
        return AnswerCheck("incorrect", f"{_show(answer)} is not {_show(reference)}")
    return AnswerCheck("unparsable", f"units differ: {_show(answer)} against {_show(reference)}")


def _show(quantity: Quantity) -> str:
    text = str(quantity.value) if len(str(quantity.value)) <= 40 else str(quantity.value)[:37] + "..."
    return f"{text} {quantity.unit}".rstrip()


_RATIO = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)\s?(?::|\bto\b|\\colon)\s?(\d{1,15}(?:\.\d{1,9})?)")


_TIME = re.compile(r"(?:[01]?\d|2[0-3]):[0-5]\d")
_POINTED_TIME = re.compile(r"\d{1,2}\.[0-5]\d")
_CLOCK = re.compile(r"(\d{1,2})(?::(\d\d))? ?(?:([ap])\.? ?m\.?)?", re.IGNORECASE)


def _compare_clocks(reference: str, answer: str) -> AnswerCheck | None:
    """`10:00 AM` against `10 a.m.`; where one side says neither am nor pm it cannot be decided."""
    texts = (" ".join(_without_commands(text).split()) for text in (reference, answer))
    left, right = (_CLOCK.fullmatch(text) for text in texts)
    if left is None or right is None or not (left[3] or right[3]):
        return None
    if (int(left[1]), left[2] or "00") != (int(right[1]), right[2] or "00"):
        is_same_clock = left[3] and right[3]
        return AnswerCheck("incorrect" if is_same_clock else "unparsable", f"{answer} against {reference}")
    if not (left[3] and right[3]):
        return AnswerCheck("unparsable", f"{answer} against {reference}: am or pm is missing")
    equal = left[3].lower() == right[3].lower()
    return AnswerCheck("correct" if equal else "incorrect", f"{answer} against {reference}")


def _compare_ratios(reference: str, answer: str) -> AnswerCheck | None:
    """`3:4` against `4:6`, `3 to 4` or 3/4; a time of day or a score is compared part by part."""
    left, right = _RATIO.fullmatch(reference), _RATIO.fullmatch(answer)
    if left and right:
        if _is_no_ratio(left) or _is_no_ratio(right):
            equal = [int(part) if part.isdigit() else part for part in left.groups()] == [
                int(part) if part.isdigit() else part for part in right.groups()
            ]
        else:
            equal = _ratio_value(left) == _ratio_value(right)
            if (
                equal
                and reference.lstrip("0") != answer.lstrip("0")
                and all(map(_TIME.fullmatch, (reference, answer)))
            ):
                return AnswerCheck("unparsable", f"{answer} against {reference}: ratios or times of day")
        return AnswerCheck("correct" if equal else "incorrect", f"{answer} against {reference}")
    ratio, other = (left, answer) if left else (right, reference)
    if ratio and _TIME.fullmatch(ratio[0]) and _same_time(ratio[0], other):
        return AnswerCheck("unparsable", f"{answer} against {reference}: a time of day or a number")
    quantity = parse_quantity(other)
    if ratio is None or quantity is None or _is_no_ratio(ratio):
        return None
    if quantity.unit:  # `1:30` may be 90 minutes
        return AnswerCheck("unparsable", f"{answer} against {reference}: a ratio or a time")
    equal = _ratio_value(ratio) == quantity.value
    return AnswerCheck("correct" if equal else "incorrect", f"{answer} against {reference} as a ratio")


def _same_time(time: str, pointed: str) -> bool:
    """True for `14:30` and `14.30`."""
    is_pointed = _POINTED_TIME.fullmatch(pointed) is not None
    return is_pointed and pointed.replace(".", ":").lstrip("0") == time.lstrip("0")


def _is_no_ratio(ratio: re.Match[str]) -> bool:
    """Nothing is divided by the minutes of `7:05`, nor by the goals of `3:0`."""
    return Fraction(ratio[2]) == 0 or (ratio[2].isdigit() and ratio[2].startswith("0"))


def _ratio_value(ratio: re.Match[str]) -> Fraction:
    return Fraction(ratio[1]) / Fraction(ratio[2])


_CHOICE = re.compile(r"\(?([A-Z])\)?(?:[).:]\s?.{0,200})?", re.DOTALL)
_TRUTH = {"true": True, "yes": True, "correct": True, "false": False, "no": False, "incorrect": False}
_SAID = re.compile(
    r"(yes|no)[,.;] (?!(?:but|wait)\b|.*\b(?:actually|i mean|unless|except|only if)\b"
    r"|(?:.*[.,;] )?(?:yes|no)\W*$)",
    re.DOTALL,
)
"""Begins a sentence that gives reasons, and no other answer."""
_OTHER_LETTER = re.compile(
    r"\b(?:no|not|actually|rather|wait|sorry|mean)\b[^A-Za-z]{0,4}[A-J]\b|[).:]\s?[A-J][).:]", re.IGNORECASE
)
_INFINITE = frozenset(("infinitely many", "infinite", "infinity", r"\infty", "an infinite number"))
_NOTHING = frozenset(
    (
        *("no solution", "no solutions", "no real solution", "no real solutions", "none", "empty set"),
        *("the empty set", "does not exist", "no such number", "no such numbers", "no solution exists"),
        *("no solutions exist", r"\emptyset", r"\{\}"),
    )
)


_MATHEMATICAL = frozenset(
    ("sin", "cos", "tan", "cot", "sec", "csc", "ln", "log", "sqrt", "pi", "exp", "infinity")
)


def _compare_words(reference: str, answer: str) -> AnswerCheck | None:
    left, right = _without_commands(reference), _without_commands(answer)
    choice = re.fullmatch(r"\(?([A-Z])\)?", left.strip())
    if choice:
        chosen = _CHOICE.fullmatch(right.strip())
        if chosen:
            if _OTHER_LETTER.search(right):
                return AnswerCheck("unparsable", f"more than one choice: {shorten(answer)}")
            verdict: Verdict = "correct" if chosen[1] == choice[1] else "incorrect"
            return AnswerCheck(verdict, f"choice {chosen[1]} against {choice[1]}")
    left, right = left.strip().lower(), right.strip().lower()
    said = _SAID.match(right)
    told = said[1] if said else right
    if left in _TRUTH and told in _TRUTH:
        equal = _TRUTH[left] == _TRUTH[told]
        return AnswerCheck("correct" if equal else "incorrect", f"{told} against {left}")
    if left in _INFINITE and right in _INFINITE:
        return AnswerCheck("correct", "both say infinitely many")
    if left in _NOTHING and right in _NOTHING:
        return AnswerCheck("correct", "both say that there is no solution")
    texts = _without_commands(reference), _without_commands(answer)
    if _names_subject_or_predicate(*texts) or _names_subject_or_predicate(*texts[::-1]):
        return AnswerCheck("correct", f"{shorten(answer)} is what {shorten(reference)} says")
    words = plain_words(right)
    if words is None:
        is_asked = left in _TRUTH
        return AnswerCheck("unparsable", f"{shorten(answer)} says neither yes nor no") if is_asked else None
    if _ARTICLE.sub("", words) == _ARTICLE.sub("", plain_words(left) or ""):
        if _VARIABLE.findall(texts[0]) != _VARIABLE.findall(texts[1]):
            return AnswerCheck("unparsable", f"{shorten(answer)}: a letter in the other case")
        return AnswerCheck("correct", f"same words {shorten(words)}")
    if (
        not _MATHEMATICAL.isdisjoint(re.split(r"[ ,;\-]+", words))
        or max(map(len, re.split(r"[ ,;\-]+", words))) == 1
    ):
        return None  # `sin x`, `i, -i`
    if words in NUMBER_WORDS or len(words) > 1:
        return AnswerCheck("unparsable", f"the answer is given in words: {shorten(words)}")
    return None


def _names_subject_or_predicate(sentence: str, answer: str) -> bool:
    """`Petya` for `Petya wins the game`, `odd` for `The function is odd`, `No` for `No, it does not`."""
    sentence, answer = sentence.strip(" .$"), _ARTICLE.sub("", answer.strip(" .$"), count=1)
    if not _ONE_WORD.fullmatch(answer) or len(sentence.split()) < 3:
        return False
    if answer.lower() in {"yes", "no"}:
        said = _SAID.match(sentence.lower())
        return said is not None and said[1] == answer.lower()
    if NEGATION.search(sentence) or _OTHER_END.search(sentence):
        return False
    first = re.match(r"([A-Za-z]{2,20})(?=[ ,.;])", sentence)
    is_subject = first is not None and first[1] == answer and answer[0].isupper()
    others = re.findall(r"(?<!^)\b[A-Z][a-z]+", sentence)
    if is_subject and answer.lower() not in _NO_NAMES:
        return not others
    predicate = re.search(r"\b(?:is|are|was|were) (?:an? |the )?([A-Za-z]{3,20})$", sentence)
    return predicate is not None and predicate[1].lower() == answer.lower()


_VARIABLE = re.compile(r"(?<![^\W\d_])(?:(?![aA] [A-Za-z]{2})[^\W\d_]|[A-Z]{2,3})(?![^\W\d_])")
"""A letter that stands alone, and is no article, or points: `R` is another radius than `r`, `AC` not `ac`."""
_ARTICLE = re.compile(r"\b(?:the|an?) (?=[a-z]{2})")
_ONE_WORD = re.compile(r"[A-Za-z]{2,20}")
NEGATION = re.compile(r"\b(?:not|never|neither|nor|cannot|or|either|unless)\b|n't\b", re.IGNORECASE)
_OTHER_END = re.compile(
    r"\b(?:los(?:t|es?|er|ing)|least|fewest|worst|fail(?:s|ed)?)\b|\b(?:last|second|third)$"
)
"""`Paul came last` names Paul, but not as the one that was asked for."""
_NO_NAMES = frozenset(
    (
        *("the", "it", "if", "for", "there", "this", "that", "more", "less", "each", "any", "all", "both"),
        *("when", "they", "he", "she", "we", "let", "an", "in", "on", "at", "to", "some", "every", "only"),
        "none",
    )
)


def plain_words(text: str) -> str | None:
    """The text in lower case when it holds words only, else None."""
    bare = _without_commands(text).strip(' ."').lower()
    if len(bare) > 4:  # `n!` and `f'` are no words
        bare = bare.strip("!' ")
    return " ".join(bare.split()) if _WORDS.fullmatch(bare) else None


_WORDS = re.compile(r"[^\W\d_][^\W\d_ '\-,;]*(?:[ '\-,;]+[^\W\d_][^\W\d_'\-]*)*")


def _without_commands(text: str) -> str:
    return TEXT_COMMAND.sub(r"\1", text)


def _squeezed(text: str) -> str:
    """Without spaces, but those between two digits: `1 2` is not 12."""
    return re.sub(r"\{(\w)\}", r"\1", re.sub(r"(?<!\d)\s+|\s+(?!\d|\s)", "", text))


_SMALL_NUMBERS = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven"),
    *("twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
)
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")


def _number_words() -> dict[str, int]:
    small = _SMALL_NUMBERS
    words = {word: number for number, word in enumerate(small)}
    for tens, word in enumerate(_TENS, start=2):
        words[word] = tens * 10
        for ones in range(1, 10):
            words[f"{word}-{small[ones]}"] = words[f"{word} {small[ones]}"] = tens * 10 + ones
    words |= {"a hundred": 100, "one hundred": 100, "hundred": 100, "a dozen": 12}
    return words


NUMBER_WORDS = _number_words()
"""`twenty-one` -> 21, up to a hundred."""
