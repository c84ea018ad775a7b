r"""Answers whose notation algebra would skip over (row 3): congruences, ratios of three, limits with a value.

math-verify takes `x \equiv 3 \pmod 5` for `x \equiv 2 \pmod 5` and `2:3:5` for `2:5:3`. Ratios of two and
number bases are compared in `comparison.py`.
"""

import re
from fractions import Fraction

from cooper_rl.verdicts.answers.comparison import AnswerCheck, shorten

_CONGRUENCE = re.compile(
    r"(?:\\?([A-Za-z]+)\s?(?:\\equiv|≡|=)\s?)?(-?\d{1,18})\s?\(?\s?\\?(?:pmod|bmod|mod)\s?\{?\s?(\d{1,18})\s?\}?\s?\)?"
)
_MODULAR = re.compile(r"\\equiv|≡|\\[pb]?mod|(?<![A-Za-z\\])mod(?![A-Za-z])")
_SUBSCRIPTED_NUMBER = re.compile(r"(?<![A-Za-z_\d{^])[\dA-F]+ ?(?:\})? ?_\s?\{? ?\d")
"""math-verify skips the base of `52_5`, which is no number at all."""
_PART = r"\d{1,15}(?:\.\d{1,9})?"
_RATIO = re.compile(rf"{_PART}(?: ?: ?{_PART}){{2,}}")
_OPERATION = re.compile(r"\\(?:lim|int|iint|oint|sum|prod)(?![A-Za-z])")
_STATEMENT = re.compile(
    r"\\(?:forall|exists|ne|subset|subseteq|parallel|perp|cong|sim|to|rightarrow|implies)(?![A-Za-z])"
)


def compare_notation(reference: str, answer: str) -> AnswerCheck | None:
    """The verdict where either side is a congruence or a ratio of three or more; None for anything else."""
    if _MODULAR.search(reference) or _MODULAR.search(answer):
        return _compare_congruences(reference, answer)
    if _SUBSCRIPTED_NUMBER.search(reference) or _SUBSCRIPTED_NUMBER.search(answer):
        return AnswerCheck("unparsable", "a number with a base in an expression")
    left, right = _RATIO.fullmatch(reference), _RATIO.fullmatch(answer)
    if left and right:
        return _compare_ratios(reference, answer)
    if ":" in reference or ":" in answer:
        return AnswerCheck("unparsable", "a ratio of expressions")
    return None


def value_of_operation(text: str) -> str:
    """What stands right of `=` after a limit, an integral or a sum; any other text as it is."""
    head, equals, value = text.rpartition("=")
    # The `=` of a sum's lower bound stands inside its braces.
    is_operation = equals and _OPERATION.match(head.strip()) and head.count("{") == head.count("}")
    return value.strip() if is_operation and value.strip() else text


def holds_statement(text: str) -> bool:
    r"""Whether the text says something that has no value: `x \ne 2`, `A \parallel B`."""
    return _STATEMENT.search(text) is not None


def _compare_congruences(reference: str, answer: str) -> AnswerCheck:
    left, right = _CONGRUENCE.fullmatch(reference), _CONGRUENCE.fullmatch(answer)
    what = f"{shorten(answer)} against {shorten(reference)}"
    if left is None or right is None or int(left[3]) == 0:
        return AnswerCheck("unparsable", f"{what}: not both are a congruence")
    if left[1] and right[1] and left[1] != right[1]:
        return AnswerCheck("unparsable", f"{what}: other variables")
    modulus = int(left[3])
    is_equal = modulus == int(right[3]) and (int(left[2]) - int(right[2])) % modulus == 0
    return AnswerCheck("correct" if is_equal else "incorrect", f"congruence: {what}")


def _compare_ratios(reference: str, answer: str) -> AnswerCheck:
    left, right = ([Fraction(part.strip()) for part in text.split(":")] for text in (reference, answer))
    what = f"{shorten(answer)} against {shorten(reference)} as a ratio"
    if len(left) != len(right):
        return AnswerCheck("incorrect", what)
    total, other_total = sum(left), sum(right)
    is_equal = [part * other_total for part in left] == [part * total for part in right] and bool(total)
    return AnswerCheck("correct" if is_equal or left == right else "incorrect", what)
