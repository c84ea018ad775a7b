"""Verdicts by rule, from one verifier that the whole process shares.

Its workers start with the first comparison that needs them and end with the process. A forked child gets
workers of its own (`verdicts/rule.py`).
"""

import atexit
from collections.abc import Iterable, Sequence
from functools import cache
from typing import cast, get_args

from cooper_rl.config.data import RuleConfig
from cooper_rl.errors import DataError
from cooper_rl.schema.data import FinishReason
from cooper_rl.schema.texts import replace_surrogates
from cooper_rl.verdicts.answers.verify import AnswerCheck, AnswerItem
from cooper_rl.verdicts.rule import RuleVerifier


def verify(
    reference_answer: str,
    completion: str,
    *,
    question: str = "",
    finish_reason: FinishReason | None = None,
) -> AnswerCheck:
    r"""Check by rule whether a completion's final answer means the reference answer.

    Args:
        reference_answer: The known final answer alone, without its derivation.
        completion: What a model wrote.
        question: Its choices tell which value a letter stands for.
        finish_reason: `length`: the completion was cut, so that its last number may be half of one.

    Returns:
        The verdict and its reason. The verdict is `correct`, `incorrect`, or `unparsable` where the rule
        abstains.

    Raises:
        DataError: an argument is of another type.
        CooperError: the worker processes cannot be started.

    Examples:
        >>> verify("1/2", r"So we get \boxed{0.5}.").verdict
        'correct'
        >>> verify("1/2", "The answer is 0.6.").verdict
        'incorrect'
        >>> verify("12", "The answer is B.", question="3 times 4? (A) 7 (B) 12").verdict
        'correct'
        >>> verify("12", "The answer is 12", finish_reason="length").verdict
        'unparsable'
    """
    return verify_many([(reference_answer, completion, question, finish_reason)])[0]


def verify_many(
    items: Iterable[tuple[str, str] | tuple[str, str, str] | tuple[str, str, str, FinishReason | None]],
) -> list[AnswerCheck]:
    """`verify` for many completions at once, on all cores; one check each, in order.

    An item is (reference answer, completion), followed by the question and the finish reason where they are
    known. Callable from any thread, before and after `fork`, and inside a running event loop, which it blocks
    (`await asyncio.to_thread(verify_many, items)` does not). For other settings than the defaults open a
    `RuleVerifier(RuleConfig(...))` in a `with` statement.

    Raises:
        DataError: an item is of another form; names its index.
        CooperError: the worker processes cannot be started.

    Examples:
        >>> [check.verdict for check in verify_many([("7", "#### 7"), ("7", "#### 8"), ("7", "I give up")])]
        ['correct', 'incorrect', 'unparsable']
    """
    return shared_verifier().verify([_read_item(index, item) for index, item in enumerate(items)])


def _read_item(index: int, item: Sequence[object]) -> AnswerItem:
    parts = read_tuple(item)
    texts, ending = parts[:3], parts[3] if len(parts) == 4 else None
    is_read = 2 <= len(parts) <= 4 and all(isinstance(text, str) for text in texts)
    if not is_read or ending not in (None, *get_args(FinishReason)):
        raise DataError(
            f"item {index}: {item!r} is no pair of strings; give (reference answer, completion), followed by "
            "the question and the finish reason 'stop', 'length' or None where they are known"
        )
    return AnswerItem(
        *map(replace_surrogates, map(str, texts)), finish_reason=cast(FinishReason | None, ending)
    )


def read_tuple(item: object) -> tuple[object, ...]:
    """The parts of a row that is a tuple or a list; none of anything else, which is no row.

    A text would give its letters, and a mapping its keys.
    """
    return tuple(item) if isinstance(item, tuple | list) else ()


@cache
def shared_verifier() -> RuleVerifier:
    verifier = RuleVerifier(RuleConfig())
    atexit.register(verifier.close)
    return verifier
