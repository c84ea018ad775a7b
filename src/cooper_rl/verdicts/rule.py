"""The rule verifier (rows 3 and 11): answer checks in order, in worker processes that can be killed.

Plain answers are compared in this process, in bounded time; the rest goes to the workers. A verdict depends
on the two texts only, not on load, order or the number of workers. Callable from any thread, and in a forked
child, which gets workers of its own; from an asyncio loop through `verify_async`. The comparison itself is in
`verdicts/answers/verify.py`.
"""

import asyncio
import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from cooper_rl.config.data import RuleConfig
from cooper_rl.errors import CooperError
from cooper_rl.machine.cores import usable_cores
from cooper_rl.verdicts.answers.verify import (
    AnswerCheck,
    AnswerItem,
    Comparison,
    compare_quickly,
    state_answer,
)
from cooper_rl.verdicts.pool import WorkerPool
from cooper_rl.verdicts.worker import WALL_TO_CPU_SECONDS

CACHE_SIZE = 200_000
"""Comparisons remembered, the least recently used forgotten first."""


class RuleVerifier:
    """Checks completions against reference answers; a context manager that owns its worker processes.

    Workers start with the first comparison that needs them and end with the context, or with this process.
    """

    def __init__(self, config: RuleConfig | None = None, *, num_processes: int = 1) -> None:
        """`num_processes`: that verify at the same time and share the cores."""
        config = config or RuleConfig()
        self._config = config
        self._num_workers = config.num_workers or max(1, usable_cores() // num_processes)
        self._cache: OrderedDict[Comparison, AnswerCheck] = OrderedDict()
        self._lock = threading.Lock()
        self._pool: WorkerPool | None = None
        self._is_closed = False
        _verifiers.add(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the workers; afterwards `verify` refuses."""
        with self._lock:
            pool, self._pool, self._is_closed = self._pool, None, True
        if pool is not None:
            pool.close()

    def verify(self, items: Sequence[AnswerItem | tuple[str, str]]) -> list[AnswerCheck]:
        """One check per item, in order; a pair is a reference answer and a completion.

        Raises:
            CooperError: the verifier is closed, or its workers cannot be started.
        """
        if self._is_closed:
            raise CooperError(
                "the rule verifier was asked for a verdict after it was closed; ask inside its `with`"
            )
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
        for stated, check in zip(waiting, self._ask_workers(list(waiting)), strict=True):
            self._remember(stated, check)
            for position in waiting[stated]:
                checks[position] = check
        return [check for check in checks if check is not None]

    def _renew(self) -> None:
        """In a forked child: workers of its own. The parent's threads, which may hold the lock, are gone."""
        self._lock = threading.Lock()
        self._cache = OrderedDict()
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.disown()

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
        with self._lock:
            self._cache[stated] = check
            if len(self._cache) > CACHE_SIZE:
                self._cache.popitem(last=False)

    def _ask_workers(self, questions: list[Comparison]) -> list[AnswerCheck]:
        if not questions:
            return []
        with self._lock:
            if self._pool is None:
                limit = self._config.timeout_seconds
                self._pool = WorkerPool(
                    "cooper_rl.verdicts.worker",
                    [repr(limit), self._config.policy.model_dump_json()],
                    num_workers=self._num_workers,
                    limit_seconds=limit * (WALL_TO_CPU_SECONDS + 1),
                )
            pool = self._pool
        return [AnswerCheck(*reply) for reply in pool.ask(questions)]


_verifiers: weakref.WeakSet[RuleVerifier] = weakref.WeakSet()


def _after_fork() -> None:
    for verifier in list(_verifiers):
        verifier._renew()  # pyright: ignore[reportPrivateUsage]


os.register_at_fork(after_in_child=_after_fork)
