"""Verdicts by rule, from one verifier that the whole process shares.

Its workers start with the first comparison that needs them and end with the process. A forked child gets
workers of its own (`verdicts/rule.py`).
"""

import atexit
from collections.abc import Iterable
from functools import cache

from cooper_rl.config.data import RuleConfig
from cooper_rl.errors import DataError
from cooper_rl.verdicts.answers.verify import AnswerCheck
from cooper_rl.verdicts.rule import RuleVerifier


def verify(reference_answer: str, completion: str) -> AnswerCheck:
    r"""Check by rule whether a completion's final answer means the reference answer.

    Args:
        reference_answer: The known final answer alone, without its derivation.
        completion: What a model wrote.

    Returns:
        `verdict`: `correct`, `incorrect`, or `unparsable` where the rule abstains; `reason`: what was
        compared.

    Raises:
        DataError: an argument is no string.
        CooperError: the worker processes cannot be started.

    Examples:
        >>> verify("1/2", r"So we get \boxed{0.5}.").verdict
        'correct'
        >>> verify("1/2", "The answer is 0.6.").verdict
        'incorrect'
    """
    return verify_many([(reference_answer, completion)])[0]


def verify_many(items: Iterable[tuple[str, str]]) -> list[AnswerCheck]:
    """`verify` for many (reference answer, completion) pairs at once, on all cores; one check each, in order.

    Callable from any thread, before and after `fork`, and inside a running event loop, which it blocks
    (`await asyncio.to_thread(verify_many, items)` does not). For other settings than the defaults open a
    `RuleVerifier(RuleConfig(...))` in a `with` statement.

    Raises:
        DataError: an item is no pair of strings; names its index.
        CooperError: the worker processes cannot be started.

    Examples:
        >>> [check.verdict for check in verify_many([("7", "#### 7"), ("7", "#### 8"), ("7", "I give up")])]
        ['correct', 'incorrect', 'unparsable']
    """
    pairs: list[tuple[str, str]] = []
    for index, item in enumerate(items):
        pair = tuple(item)
        if len(pair) != 2 or not all(isinstance(text, str) for text in pair):
            raise DataError(
                f"item {index}: {item!r} is no pair of strings; give (reference answer, completion)"
            )
        pairs.append(pair)
    return shared_verifier().verify(pairs)


@cache
def shared_verifier() -> RuleVerifier:
    verifier = RuleVerifier(RuleConfig())
    atexit.register(verifier.close)
    return verifier
