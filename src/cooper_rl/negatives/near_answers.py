"""Mathematics: texts that name the right answer and commit to another one, or to none."""

import re
from collections.abc import Callable
from decimal import Decimal

from cooper_rl.config.data import AnswerPolicy
from cooper_rl.negatives.canaries import Case
from cooper_rl.negatives.text_attacks import pick
from cooper_rl.verdicts.answers.extraction import FinalAnswer
from cooper_rl.verdicts.answers.question import read_precision
from cooper_rl.verdicts.answers.verify import contradicts, is_another_answer
from cooper_rl.verdicts.verifier import AnswerItem

NEGATED_SPELLINGS = (
    "The answer is not {right}.",
    "The final answer is anything but {right}.",
    "\\boxed{{{right}}} is not the answer.",
    "#### not {right}",
)
"""All of them deny the right answer; none gives another."""
SCALED_SPELLINGS = ("The answer is {wrong}.", "\\boxed{{{wrong}}}", "#### {wrong}")
HEDGED_SPELLINGS = (
    "The answer is {right} or {wrong}, probably {wrong}.",
    "It is either {right} or {wrong}. I would say {wrong}.",
    "At first I found {right}, but {wrong} is more likely. The answer is {wrong}.",
)
_NUMBER = re.compile(r"(-?(?:\\?\$)?)(\d{1,3}(?:,\d{3}){1,4}|\d{1,15})(\.\d{1,15})?( ?\D{0,30})")
"""Sign and currency, whole part, decimals, unit."""


def negate_answer(case: Case) -> str:
    """The right answer is said not to be the answer, and no other one is given."""
    return pick(case, NEGATED_SPELLINGS).format(right=case.example.reference_answer.strip())


def scale_answer(case: Case) -> str | None:
    """The right number with its decimal point moved by one place, as the final answer."""
    wrong = _change_number(case, lambda value: value.scaleb(pick(case, (1, -1))))
    return None if wrong is None else pick(case, SCALED_SPELLINGS).format(wrong=wrong)


def hedge_near_miss(case: Case) -> str | None:
    """The right number beside the one that is greater by one in the last digit, on which the text settles.

    None where the question asks for a measure or for about how many, and the number has more digits than that
    takes: both may be right.
    """
    wrong = _change_number(case, _to_next, max_digits=_count_digits_asked(case.example.question))
    if wrong is None:
        return None
    right = case.example.reference_answer.strip()
    return pick(case, HEDGED_SPELLINGS).format(right=right, wrong=wrong)


def _to_next(value: Decimal) -> Decimal:
    return value + Decimal((0, (1,), int(value.as_tuple().exponent)))


def _count_digits_asked(question: str) -> int | None:
    precision = read_precision(question)
    return None if precision is None else precision.digits


def _change_number(
    case: Case, change: Callable[[Decimal], Decimal], *, max_digits: int | None = None
) -> str | None:
    """The reference answer with another number, as it is written; None where it is no number of at most
    `max_digits` digits, or where the other is not certainly wrong."""
    right = case.example.reference_answer.strip()
    found = _NUMBER.fullmatch(right)
    if found is None:
        return None
    value = Decimal(found[2].replace(",", "") + (found[3] or ""))
    if max_digits is not None and len(value.as_tuple().digits) > max_digits:
        return None
    changed = format(change(value), "f")
    if "." in changed:
        changed = changed.rstrip("0").rstrip(".")
    wrong = f"{found[1]}{changed}{found[4]}"
    question = case.example.question
    item, stated = AnswerItem(right, wrong, question), FinalAnswer(wrong, "changed number")
    is_wrong = contradicts(item, stated, AnswerPolicy()) and is_another_answer(question, right, wrong)
    return wrong if is_wrong else None
