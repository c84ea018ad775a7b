r"""The rule verdict on one completion (row 3): correct, incorrect, or unparsable, with a reason.

In order: find the final answer (`extraction.py`), bring it and the reference answer to one spelling
(`text.py`), compare numbers, words and lists exactly (`comparison.py`), and leave the rest to math-verify
with checks after it (`symbols.py`). `verdicts/rule.py` puts time limits and processes round it.
"""

import re
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import Literal, NamedTuple

from cooper_rl.config.data import AnswerPolicy
from cooper_rl.verdicts.answers.arithmetic import evaluate
from cooper_rl.verdicts.answers.comparison import AnswerCheck, compare_exactly, read_quantity, shorten
from cooper_rl.verdicts.answers.extraction import FinalAnswer, find_final_answer
from cooper_rl.verdicts.answers.notation import find_clash
from cooper_rl.verdicts.answers.numbers import Quantity, parse_quantity, rounds_to
from cooper_rl.verdicts.answers.parts import LeafComparison, compare_parts
from cooper_rl.verdicts.answers.plain import to_latex, with_subscripts
from cooper_rl.verdicts.answers.question import (
    Precision,
    is_short_for,
    rate_rounding,
    read_precision,
    repeats_question,
    resolve_choice,
    round_alike,
)
from cooper_rl.verdicts.answers.stated.last_line import read_statement
from cooper_rl.verdicts.answers.structure import (
    QUALIFIER,
    find_syntax_fault,
    parse_structure,
    without_brackets,
)
from cooper_rl.verdicts.answers.text import normalise_answer
from cooper_rl.verdicts.answers.units import TEXT_COMMAND, same_unit, split_unit
from cooper_rl.verdicts.verifier import AnswerItem

MAX_QUICK_CHARS = 1000
"""Longer answers are compared in a worker, which a time limit ends, even where no algebra is needed."""
MAX_ALGEBRA_CHARS = 3000


class Comparison(NamedTuple):
    """The texts left to compare once the final answer is found; equal comparisons have equal verdicts."""

    reference_answer: str
    answer: str
    marker: str
    precision: Precision | None = None
    """The digits that the question asks for."""
    repeats_question: bool = False
    """The answer is a calculation that stands in the question."""


def verify_answer(
    reference_answer: str,
    completion: str,
    *,
    question: str = "",
    finish_reason: Literal["stop", "length"] | None = None,
    policy: AnswerPolicy | None = None,
) -> AnswerCheck:
    """The rule verdict on a completion, in this process and without a time limit.

    Never raises on a completion. Source of the comparison of last resort: math-verify 0.9.
    """
    policy = policy or AnswerPolicy()
    stated = state_answer(AnswerItem(reference_answer, completion, question, finish_reason), policy)
    return stated if isinstance(stated, AnswerCheck) else compare_answers(stated, policy)


def check_quickly(item: AnswerItem, found: FinalAnswer, policy: AnswerPolicy) -> AnswerCheck | None:
    """The verdict on a completion's final answer where it needs no algebra; else None."""
    stated = _state(item, found, policy)
    return stated if isinstance(stated, AnswerCheck) else compare_quickly(stated, policy)


def contradicts(item: AnswerItem, found: FinalAnswer, policy: AnswerPolicy) -> bool:
    """True if a completion's final answer is incorrect, and no algebra is needed to see it."""
    check = check_quickly(item, found, policy)
    return check is not None and check.verdict == "incorrect"


def state_answer(item: AnswerItem, policy: AnswerPolicy) -> Comparison | AnswerCheck:
    """Find and normalise what is to be compared; a verdict already when the completion states no answer."""
    found = find_final_answer(item.completion, policy, is_cut=item.finish_reason == "length")
    if found is None:
        return AnswerCheck("unparsable", "the completion states no answer")
    return _state(item, found, policy)


def _state(item: AnswerItem, found: FinalAnswer, policy: AnswerPolicy) -> Comparison | AnswerCheck:
    if not found.text.strip():
        return AnswerCheck("unparsable", f"nothing after the marker {found.marker!r}")
    reference, answer = _reference_text(item.reference_answer), normalise_answer(found.text)
    return _put_to(item.question, reference, answer, found.marker, policy)


def _put_to(
    question: str, reference: str, answer: str, marker: str, policy: AnswerPolicy
) -> Comparison | AnswerCheck:
    """Two normalised answers with what the question says of them: its choices, its words, its digits."""
    resolved = resolve_choice(reference, answer, question)
    if isinstance(resolved, AnswerCheck):
        return resolved
    if is_short_for(*resolved, question):
        return AnswerCheck("correct", f"{shorten(answer)} and the question's words are {shorten(reference)}")
    precision = read_precision(question, reads_units=policy.measured_rounding)
    return Comparison(*resolved, marker, precision, repeats_question(*resolved, question))


def compare_quickly(stated: Comparison, policy: AnswerPolicy) -> AnswerCheck | None:
    """The verdict where it needs no algebra and bounded time; None when `compare_answers` must decide."""
    if max(len(stated.reference_answer), len(stated.answer)) > MAX_QUICK_CHARS:
        return None
    check = _compare_rounded(stated, policy, value=None)
    return check or _without_clash(stated, _compare(stated, policy, algebra=None))


def _compare_rounded(
    stated: Comparison, policy: AnswerPolicy, *, value: Callable[[str], Fraction | None] | None
) -> AnswerCheck | None:
    """The verdict on an answer that is the reference answer at the digits asked for, or at fewer; else None.

    `value` finds the value of an expression that is no number; None: it is not looked for.
    """
    if stated.precision is None:
        return None
    reference, answer = parse_quantity(stated.reference_answer), read_quantity(stated.answer, policy)
    if reference is None and answer is not None and value is not None:
        found = value(without_brackets(to_latex(stated.reference_answer)))
        reference = None if found is None else Quantity(found, "", None, None, "")
    if reference is None or answer is None:
        return None
    # A list: it may come from another process.
    verdict = rate_rounding(reference, answer, Precision(*stated.precision))
    if verdict is None:
        return None
    how = "as the question rounds it" if verdict == "correct" else "with fewer digits than may be meant"
    return AnswerCheck(verdict, f"{shorten(stated.answer)} is {shorten(stated.reference_answer)} {how}")


def _without_clash(stated: Comparison, check: AnswerCheck | None) -> AnswerCheck | None:
    """An abstention in place of `correct` where the two differ in a sign that was not compared, and where the
    question is repeated in place of an answer."""
    if check is None or check.verdict != "correct":
        return check
    if stated.repeats_question:
        return AnswerCheck("unparsable", f"{shorten(stated.answer)} stands in the question")
    clash = find_clash(stated.reference_answer, stated.answer)
    return AnswerCheck("unparsable", f"{stated.answer[:80]!r}: {clash}") if clash else check


def is_another_answer(question: str, reference_answer: str, answer: str) -> bool:
    """True if an answer to the question is not the reference answer, as far as that needs no algebra.

    Numbers with a common rounding are one answer to a question that asks for digits. Without a question no
    choices and no digits are known.
    """
    if answer.strip() == reference_answer.strip():
        return False
    reference, other = _recall_reference_text(reference_answer), _recall_reference_text(answer)
    stated = _put_to(question, reference, other, "", AnswerPolicy())
    if isinstance(stated, AnswerCheck):
        return stated.verdict != "correct"
    if stated.precision is not None:
        left, right = parse_quantity(stated.reference_answer), parse_quantity(stated.answer)
        if left is not None and right is not None and round_alike(left, right, stated.precision):
            return False
    return not _recall_whether_correct(stated)


# Few questions say anything about an answer, so that the same two meet again with other questions.
@lru_cache(maxsize=100_000)
def _recall_whether_correct(stated: Comparison) -> bool:
    return _is_quickly_correct(stated, AnswerPolicy())


def _is_quickly_correct(stated: Comparison | AnswerCheck, policy: AnswerPolicy) -> bool:
    check = stated if isinstance(stated, AnswerCheck) else compare_quickly(stated, policy)
    return check is not None and check.verdict == "correct"


def is_quickly_right(item: AnswerItem, policy: AnswerPolicy) -> bool:
    """True if a completion is correct, and no algebra is needed to see it."""
    return _is_quickly_correct(state_answer(item, policy), policy)


def compare_answers(stated: Comparison, policy: AnswerPolicy) -> AnswerCheck:
    """The verdict on two stated answers, with algebra; may take any time on hostile text."""
    from cooper_rl.verdicts.answers.symbols import compare_by_math_verify, read_value

    if rounded := _compare_rounded(stated, policy, value=read_value):
        return rounded
    check = _without_clash(stated, _compare(stated, policy, algebra=compare_by_math_verify))
    return check if check is not None else AnswerCheck("unparsable", "no way to compare the two")


def _compare(
    stated: Comparison, policy: AnswerPolicy, *, algebra: LeafComparison | None
) -> AnswerCheck | None:
    reference, answer = stated.reference_answer, stated.answer

    def leaf(left: str, right: str) -> AnswerCheck | None:
        check = _compare_leaf(left, right, policy)
        return algebra(left, right) if check is None and algebra is not None else check

    check = _compare_leaf(reference, answer, policy)
    if check is not None and check.verdict != "unparsable":
        return check
    if _LAYOUT.search(reference) or _LAYOUT.search(answer):
        return AnswerCheck("unparsable", "cases or a table, in other words than the reference answer's")
    if (qualifiers := (_qualifier(reference), _qualifier(answer)))[0] != qualifiers[1] and all(qualifiers):
        return AnswerCheck("unparsable", f"qualified by {qualifiers[1]!r}, not by {qualifiers[0]!r}")
    reference, answer = with_subscripts(reference, answer)
    reference, answer = (without_brackets(to_latex(text)) for text in (reference, answer))
    left, right = parse_structure(reference), parse_structure(answer)
    (value, unit), (other_value, other_unit) = _split_unit(reference), _split_unit(answer)
    if check is None and (unit or other_unit) and "list" not in (left.kind, right.kind):
        if unit and other_unit and not same_unit(unit, other_unit):  # expressions in other units
            return AnswerCheck("unparsable", f"units differ: {other_unit} against {unit}")
        # Ends after one round: `split_unit` takes no unit off where a second one stands before it.
        return _compare(Comparison(value, other_value, stated.marker), policy, algebra=algebra)
    if left.kind != "leaf" or right.kind != "leaf" or left.variable or right.variable:
        by_parts = compare_parts(left, right, leaf)
        if by_parts is not None:
            return by_parts
    if check is not None or algebra is None:
        return check
    if max(len(reference), len(answer)) > MAX_ALGEBRA_CHARS:
        return AnswerCheck("unparsable", f"over {MAX_ALGEBRA_CHARS} characters of mathematics")
    return algebra(left.text or reference, right.text or answer)


def _split_unit(text: str) -> tuple[str, str]:
    """`x = 18 cm` as `x = 18` and its unit."""
    named = _NAMED.match(text)
    value, unit = split_unit(text[named.end() :] if named else text)
    return (named[0] if named else "") + value, unit


_NAMED = re.compile(r"[A-Za-z]\s?=\s?")
_LAYOUT = re.compile(r"\\begin ?\{(?![pbBvV]?matrix)|\\hline|\\xrightarrow")


def _qualifier(text: str) -> str:
    """The text after `for all` or `where`, without spaces, commas and brackets; it is not compared."""
    return re.sub(r"[\s,()]", "", "".join(QUALIFIER.findall(text)))


_RANGE_OR_DATE = re.compile(r"\d+(?: ?- ?\d+){1,2}|\d{1,4}/\d{1,2}/\d{1,4}")


def _compare_leaf(reference: str, answer: str, policy: AnswerPolicy) -> AnswerCheck | None:
    # `10-20` against `20-30`, a score, a date: as arithmetic they would be equal.
    if _RANGE_OR_DATE.fullmatch(reference) and reference.replace(" ", "") != answer.replace(" ", ""):
        return AnswerCheck("unparsable", f"{answer} against {reference}: a range, a score or a date")
    check = compare_exactly(reference, answer, policy) or _compare_restated(reference, answer)
    if check is not None:
        return check
    result = _chain_result(answer) if "=" not in reference else None
    if result is None and parse_quantity(reference) is not None:
        result = read_statement(" ".join(TEXT_COMMAND.sub(r" \1 ", answer).split()))
    if result is not None:
        check = compare_exactly(reference, result, policy)
        if check is not None:
            return check
    left, right = _evaluate(reference), _evaluate(answer)
    if (left is None) != (right is None) and _INFINITE.fullmatch(reference if left is None else answer):
        return AnswerCheck("incorrect", f"{answer} against {reference}: only one is infinite")
    if left is None or right is None:
        return None
    return AnswerCheck(
        "correct" if left == right else "incorrect", f"arithmetic: {answer} against {reference}"
    )


def _evaluate(text: str) -> Fraction | None:
    r"""The value of arithmetic, or of a number that it does not read: `0.\overline{3}`, `3\frac{1}{2}`."""
    value = evaluate(text)
    quantity = parse_quantity(text) if value is None else None
    return quantity.value if quantity and not quantity.unit and quantity.base is None else value


def _compare_restated(reference: str, answer: str) -> AnswerCheck | None:
    """`0.5 (1/2)`, `11.6 \\approx 12`: correct where both are; an abstention where one is."""
    restated = _RESTATED.fullmatch(answer)
    expected = parse_quantity(reference) if restated else None
    if restated is None or expected is None:
        return None
    stated = [parse_quantity(text) for text in restated.groups()]
    are_equal = [each is not None and each.value == expected.value for each in stated]
    if not any(are_equal):
        return None
    if all(are_equal):
        return AnswerCheck("correct", f"{answer[:80]!r} says it twice")
    return AnswerCheck("unparsable", f"{answer[:80]!r}: its other half says something else")


_RESTATED = re.compile(
    r"([^()]{1,60}?) ?(?:(?<= )\((?:or |i\.e\.,? |= ?)?(?=.*\)$)|\\approx(?![a-z]) ?)([^()]{1,60}?)\)?"
)
_INFINITE = re.compile(r"[+-]? ?\\infty ?")


def _chain_result(answer: str) -> str | None:
    """`3 * 4 = 12 apples`: a calculation states what stands after its last sign of equality."""
    *others, last = answer.split("=")
    if not others or "," in answer or ";" in answer or not any(map(str.isdigit, others[0])):
        return None
    result = normalise_answer(last)
    stated = parse_quantity(result)
    # `13 = 12` states two numbers. What is neither arithmetic in digits nor words is left to algebra.
    is_equal = _is_value(stated, evaluate(others[-1])) or _HAS_WORD.search(others[-1]) is not None
    return result if is_equal else None


_HAS_WORD = re.compile(r"(?<![A-Za-z\\])[A-Za-z]{2}")


def _is_value(stated: Quantity | None, value: Fraction | None) -> bool:
    """True if a number is a value or a rounding of it."""
    if stated is None or value is None:
        return False
    return stated.value == value or rounds_to(value, stated.value, stated.decimals or 0)


def parse_reference(reference_answer: str) -> None:
    """Check that a reference answer can be compared with at all, by its text alone, in linear time.

    An answer that passes may still be beyond math-verify; equal text is then all that counts as correct.

    Raises:
        ValueError: it holds no number, word or expression, or breaks off in the middle.
    """
    text = _reference_text(reference_answer)
    if not any(character.isalnum() or character in "∅∞" for character in text):
        raise ValueError(
            f"reference answer {reference_answer!r} holds no number, word or expression; give one"
        )
    fault = find_syntax_fault(text)
    if fault is not None:
        raise ValueError(f"reference answer {reference_answer[:200]!r} {fault}; give the whole answer")


def _reference_text(reference_answer: str) -> str:
    found = find_final_answer(reference_answer, AnswerPolicy()) if "\\boxed" in reference_answer else None
    return normalise_answer(found.text if found is not None else reference_answer)


# The rivals of a completion are drawn from the same few hundred answers again and again.
_recall_reference_text = lru_cache(maxsize=2048)(_reference_text)
