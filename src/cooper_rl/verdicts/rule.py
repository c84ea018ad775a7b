"""The rule verifier (rows 3 and 11): answer checks in order, in worker processes that can be killed.

Plain answers are compared in this process, in bounded time; the rest goes to the workers. A verdict depends
on the two texts only, not on load, order or the number of workers. Callable from any thread, and in a forked
child, which gets workers of its own; from an asyncio loop through `verify_async`. The comparison itself is in
`verdicts/answers/verify.py`.
"""

import asyncio
import logging
import os
import queue
import socket
import subprocess
import sys
import threading
import weakref
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from cooper_rl.config.data import RuleConfig
from cooper_rl.errors import CooperError
from cooper_rl.machine.cores import usable_cores
from cooper_rl.progress import Progress
from cooper_rl.verdicts.answers.verify import (
    AnswerCheck,
    AnswerItem,
    Comparison,
    compare_quickly,
    state_answer,
)
from cooper_rl.verdicts.worker import WALL_TO_CPU_SECONDS, receive_message, send_message

logger = logging.getLogger(__name__)

CACHE_SIZE = 200_000
"""Comparisons remembered, the least recently used forgotten first."""
STARTUP_SECONDS = 60.0
KEPT_VARIABLES = frozenset(
    {
        "PATH",
        "LANG",
        "LANGUAGE",
        "TZ",
        "HOME",
        "TMPDIR",
        "LD_LIBRARY_PATH",
        "DYLD_LIBRARY_PATH",
        "VIRTUAL_ENV",
    }
)
KEPT_PREFIXES = ("LC_", "OMP_", "MKL_", "OPENBLAS_", "PYTHON")
"""Environment variables that the workers get, and the beginnings of others."""
MIN_REPORTED = 1000
"""Questions to the workers from which on progress is logged."""


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
        self._pool: _Pool | None = None
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
                self._pool = _Pool(self._config, self._num_workers)
            pool = self._pool
        return pool.ask(questions)


_verifiers: weakref.WeakSet[RuleVerifier] = weakref.WeakSet()


def _after_fork() -> None:
    for verifier in list(_verifiers):
        verifier._renew()  # pyright: ignore[reportPrivateUsage]


os.register_at_fork(after_in_child=_after_fork)


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

    def ask(self, questions: list[Comparison]) -> list[AnswerCheck]:
        progress = Progress("rule_verifier", len(questions), logger)
        checks: list[AnswerCheck] = []
        for check in self._threads.map(self._ask_one, questions):
            checks.append(check)
            # Short batches say nothing: a training step has one every few seconds.
            if len(questions) >= MIN_REPORTED:
                progress.advance()
        return checks

    def _ask_one(self, question: Comparison) -> AnswerCheck:
        channel = self._free.get()
        try:
            send_message(channel, list(question))
            reply = receive_message(channel)
        except OSError as error:
            with suppress(OSError):
                channel.shutdown(socket.SHUT_RDWR)  # a late reply would answer the next question
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

    def disown(self) -> None:
        """Close a forked child's copies of the sockets, or the parent's workers would outlive the parent."""
        for channel in self._channels:
            os.close(channel.detach())


def _start_nursery(config: RuleConfig, sockets: Sequence[socket.socket]) -> subprocess.Popen[bytes]:
    """A clean interpreter: forking this process, with its threads and tensors, would not be safe."""
    numbers = [each.fileno() for each in sockets]
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "cooper_rl.verdicts.worker",
            repr(config.timeout_seconds),
            config.policy.model_dump_json(),
            *map(str, numbers),
        ],
        pass_fds=numbers,
        # Ctrl-C and a SIGTERM of the whole group are for this process: it may yet finish its step.
        process_group=0,
        env=_worker_environment(),
    )


def _worker_environment() -> dict[str, str]:
    """What the workers need: they parse hostile text, and get no key of this process."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in KEPT_VARIABLES or name.startswith(KEPT_PREFIXES)
    }
    return kept | {
        "PYTHONHASHSEED": "0",  # one order for sympy's sets and dicts in every process of every run
        "PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path),
    }
