"""The rule verifier (rows 3 and 11): answer checks in order, in worker processes that can be killed.

Plain answers are compared in this process, in bounded time; the rest goes to the workers. A verdict depends
on the two texts only, not on load, order or the number of workers. Callable from any thread, and in a forked
child, which gets workers of its own; from an asyncio loop through `verify_async`. The comparison itself is in
`verdicts/answers/verify.py`.
"""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from cooper_rl.config.data import RuleConfig
from cooper_rl.verdicts.answers.verify import (
    AnswerCheck,
    AnswerItem,
    Comparison,
    compare_quickly,
    state_answer,
)
from cooper_rl.verdicts.pool import PooledVerifier
from cooper_rl.verdicts.verifier import Unkept
from cooper_rl.verdicts.worker import LOST

CACHE_SIZE = 20_000
"""Comparisons remembered, the least recently used forgotten first: at most 50 MB of them."""
MAX_CACHED_CHARS = 1000
"""Longer ones are not remembered: they are hardly met twice."""


@cache
def fingerprint() -> str:
    """A hash of the code that a verdict depends on: kept verdicts do not outlive a change of it."""
    return hash_code(Path(__file__).parent)


def hash_code(folder: Path) -> str:
    """The hash over `answers/` and the worker of a folder such as this one."""
    digest = hashlib.blake2b(digest_size=8)
    for path in (*sorted((folder / "answers").rglob("*.py")), folder / "worker.py"):
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


class LostCheck(AnswerCheck, Unkept):
    """In place of a verdict whose worker was killed from outside."""


class RuleVerifier(PooledVerifier):
    """Checks completions against reference answers.

    Examples:
        >>> from cooper_rl import RuleVerifier
        >>> with RuleVerifier() as verifier:
        ...     [check.verdict for check in verifier.verify([("x+1", r"\\boxed{1+x}"), ("2", "#### 3")])]
        ['correct', 'incorrect']
    """

    def __init__(self, config: RuleConfig | None = None, *, num_processes: int = 1) -> None:
        """`num_processes`: that verify at the same time and share the cores."""
        config = config or RuleConfig()
        policy = config.policy.model_dump_json()
        super().__init__("cooper_rl.verdicts.worker", config, [policy], num_processes=num_processes)
        self._cache: OrderedDict[Comparison, AnswerCheck] = OrderedDict()

    def verify(self, items: Sequence[AnswerItem | tuple[str, str]]) -> list[AnswerCheck]:
        """One check per item, in order; a pair is a reference answer and a completion.

        Raises:
            CooperError: the verifier is closed, or its workers cannot be started.
        """
        self._check_open()
        checks: list[AnswerCheck | None] = []
        waiting: OrderedDict[Comparison, list[int]] = OrderedDict()
        for position, item in enumerate(items):
            given = item if isinstance(item, AnswerItem) else AnswerItem(item[0], item[1])
            stated = state_answer(given, self._config.policy)
            if isinstance(stated, AnswerCheck):
                checks.append(stated)
                continue
            check = self._recall_or_compare(stated)
            checks.append(check)
            if check is None:
                waiting.setdefault(stated, []).append(position)
        for stated, reply in zip(waiting, self._ask(list(waiting)), strict=True):
            if reply[0] == LOST:
                check = LostCheck("unparsable", f"no verdict: {reply[1]}")
            else:
                check = AnswerCheck(*reply)
                self._remember(stated, check)
            for position in waiting[stated]:
                checks[position] = check
        return [check for check in checks if check is not None]

    def _renew(self) -> None:
        super()._renew()
        self._cache = OrderedDict()  # a thread of the parent may have been changing it

    async def verify_async(self, items: Sequence[AnswerItem | tuple[str, str]]) -> list[AnswerCheck]:
        """`verify` without blocking the event loop."""
        return await asyncio.to_thread(self.verify, items)

    def _recall_or_compare(self, stated: Comparison) -> AnswerCheck | None:
        with self._lock:
            known = self._cache.get(stated)
            if known is not None:
                self._cache.move_to_end(stated)
                return known
        quick = compare_quickly(stated, self._config.policy)
        if quick is not None:
            self._remember(stated, quick)
        return quick

    def _remember(self, stated: Comparison, check: AnswerCheck) -> None:
        if len(stated.reference_answer) + len(stated.answer) > MAX_CACHED_CHARS:
            return
        with self._lock:
            self._cache[stated] = check
            if len(self._cache) > CACHE_SIZE:
                self._cache.popitem(last=False)
