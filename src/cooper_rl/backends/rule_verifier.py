"""The rule verifier (rows 3 and 11): answer checks in order, in worker processes that can be killed.

Plain answers are compared in this process, in bounded time; the rest goes to the workers. A verdict depends
on the two texts only, not on load, order or the number of workers. Callable from any thread; from an asyncio
loop through `verify_async`. Deliberately left out: the comparison itself (`core/answers.py`).
"""

import asyncio
import logging
import os
import queue
import socket
import subprocess
import sys
import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self

from cooper_rl.backends.rule_worker import WALL_TO_CPU_SECONDS, receive_message, send_message
from cooper_rl.config import RuleConfig
from cooper_rl.core.answers import AnswerCheck, Comparison, compare_quickly, state_answer
from cooper_rl.errors import CooperError
from cooper_rl.progress import Progress

logger = logging.getLogger(__name__)

CACHE_SIZE = 200_000
"""Comparisons remembered, the least recently used forgotten first."""
STARTUP_SECONDS = 60.0


class RuleVerifier:
    """Checks completions against reference answers; a context manager that owns its worker processes.

    Workers start with the first comparison that needs them and end with the context, or with this process.
    """

    def __init__(self, config: RuleConfig) -> None:
        self._config = config
        self._num_workers = config.num_workers or os.cpu_count() or 1
        self._cache: OrderedDict[Comparison, AnswerCheck] = OrderedDict()
        self._lock = threading.Lock()
        self._pool: _Pool | None = None
        self._is_closed = False

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

    def verify(self, items: Sequence[tuple[str, str]]) -> list[AnswerCheck]:
        """One check per (reference answer, completion), in order.

        Raises:
            CooperError: the verifier is closed, or its workers cannot be started.
        """
        if self._is_closed:
            raise CooperError("RuleVerifier.verify was called after close; call it inside its `with` block")
        progress = Progress("rule_verifier", len(items), logger)
        checks: list[AnswerCheck | None] = []
        waiting: OrderedDict[Comparison, list[int]] = OrderedDict()
        for position, (reference_answer, completion) in enumerate(items):
            stated = state_answer(reference_answer, completion)
            check = stated if isinstance(stated, AnswerCheck) else self._recall_or_compare(stated)
            checks.append(check)
            if check is not None:
                progress.advance()
            elif isinstance(stated, Comparison):
                waiting.setdefault(stated, []).append(position)
        for stated, check in zip(waiting, self._compare_in_workers(list(waiting)), strict=True):
            self._remember(stated, check)
            for position in waiting[stated]:
                checks[position] = check
            progress.advance(len(waiting[stated]))
        return [check for check in checks if check is not None]

    async def verify_async(self, items: Sequence[tuple[str, str]]) -> list[AnswerCheck]:
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

    def _compare_in_workers(self, comparisons: list[Comparison]) -> "list[AnswerCheck]":
        if not comparisons:
            return []
        with self._lock:
            if self._pool is None:
                self._pool = _Pool(self._config, self._num_workers)
            pool = self._pool
        return pool.compare(comparisons)


class _Pool:
    """The nursery process, a socket for each of its workers, and a thread for each socket."""

    def __init__(self, config: RuleConfig, num_workers: int) -> None:
        self._config = config
        pairs = [socket.socketpair() for _ in range(num_workers)]
        self._channels = [ours for ours, _ in pairs]
        self._free: queue.SimpleQueue[socket.socket] = queue.SimpleQueue()
        self._nursery = _start_nursery(config, [theirs for _, theirs in pairs])
        for ours, theirs in pairs:
            theirs.close()
            ours.settimeout(STARTUP_SECONDS + config.timeout_seconds * (WALL_TO_CPU_SECONDS + 1))
            self._free.put(ours)
        self._threads = ThreadPoolExecutor(num_workers, thread_name_prefix="rule_verifier")

    def compare(self, comparisons: list[Comparison]) -> list[AnswerCheck]:
        return list(self._threads.map(self._compare_one, comparisons))

    def _compare_one(self, stated: Comparison) -> AnswerCheck:
        channel = self._free.get()
        try:
            send_message(channel, list(stated))
            reply = receive_message(channel)
        except OSError as error:
            raise CooperError(
                f"a rule verifier worker is gone ({error}); see its messages above and start again"
            ) from error
        finally:
            self._free.put(channel)
        if reply is None:
            raise CooperError(
                f"the rule verifier's processes ended (exit status {self._nursery.poll()}); "
                "see their messages above and start again"
            )
        return AnswerCheck(*reply)

    def close(self) -> None:
        self._threads.shutdown()
        for channel in self._channels:
            channel.close()
        try:
            self._nursery.wait(self._config.timeout_seconds)
        except subprocess.TimeoutExpired:
            self._nursery.kill()
            self._nursery.wait()


def _start_nursery(config: RuleConfig, sockets: Sequence[socket.socket]) -> subprocess.Popen[bytes]:
    """A clean interpreter: forking this process, with its threads and tensors, would not be safe."""
    numbers = [each.fileno() for each in sockets]
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "cooper_rl.backends.rule_worker",
            repr(config.timeout_seconds),
            config.policy.model_dump_json(),
            *map(str, numbers),
        ],
        pass_fds=numbers,
        # One order for sympy's sets and dicts in every process of every run.
        env=os.environ
        | {
            "PYTHONHASHSEED": "0",
            "PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path),
        },
    )
