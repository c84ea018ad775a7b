"""The worker processes of a verifier: a nursery that forks them, a socket and a thread for each.

A worker may end at any question, killed by its own limits; the nursery says so on its socket and forks the
next one. A question whose worker was killed from outside is asked once more. A verifier starts its pool with
the first question, and a forked child has one of its own. The workers' own code is in `verdicts/worker.py`
and `verdicts/program_worker.py`.
"""

import logging
import os
import queue
import socket
import subprocess
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from cooper_rl.config.data import RuleConfig
from cooper_rl.errors import CooperError
from cooper_rl.machine.cores import usable_cores
from cooper_rl.machine.memory import usable_memory
from cooper_rl.progress import Progress
from cooper_rl.verdicts.worker import (
    LOST,
    MAX_MEMORY_BYTES,
    WALL_TO_CPU_SECONDS,
    receive_message,
    send_message,
)

logger = logging.getLogger(__name__)

STARTUP_SECONDS = 60.0
END_SECONDS = 5.0
"""Seconds for workers to end by themselves."""
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
MEMORY_SHARE = 0.5
"""Share of the container's memory for the limits of all workers together; the rest is this process's."""
MIN_REPORTED = 1000
"""Questions to the workers from which on progress is logged."""


class WorkerPool:
    """The nursery process, a socket for each of its workers, and a thread for each socket."""

    def __init__(
        self, module: str, arguments: Sequence[str], *, num_workers: int, limit_seconds: float
    ) -> None:
        """Start `python -m module ARGUMENTS SOCKETS`; no answer takes a worker longer than the limit."""
        # Sockets and not pipes: both directions in one handle, and an end that closes is seen by the other
        # at once.
        self.channels: list[socket.socket] = []
        self._num_asked: Counter[socket.socket] = Counter()
        """Questions on each channel."""
        self._free: queue.SimpleQueue[socket.socket] = queue.SimpleQueue()
        with ExitStack() as on_failure, ExitStack() as started:
            workers: list[socket.socket] = []
            for _ in range(num_workers):
                ours, theirs = socket.socketpair()
                self.channels.append(on_failure.enter_context(ours))
                # This process's copy would keep the connection open when the worker dies, and nobody would
                # notice.
                workers.append(started.enter_context(theirs))
                # Longer than any limit of the worker: it is for a machine that stands still, not for a hard
                # comparison.
                ours.settimeout(STARTUP_SECONDS + limit_seconds)
                self._free.put(ours)
            self.nursery = _start_nursery(module, arguments, workers)
            on_failure.pop_all()
        self._threads = ThreadPoolExecutor(num_workers, thread_name_prefix="rule_verifier")

    def ask(self, questions: Sequence[Sequence[Any]]) -> list[Any]:
        """A reply to every question, in order; `[LOST, why]` where its process was killed twice.

        Raises:
            CooperError: the workers are gone.
        """
        progress = Progress("rule_verifier", len(questions), logger)
        replies: list[Any] = []
        for reply in self._threads.map(self._ask_twice, questions):
            replies.append(reply)
            # Short batches say nothing: a training step has one every few seconds.
            if len(questions) >= MIN_REPORTED:
                progress.advance()
        return replies

    def _ask_twice(self, question: Sequence[Any]) -> Any:
        """Once more where the process was killed from outside. Not for ever: the text may be the reason."""
        reply = self._ask_one(question)
        if reply[0] == LOST:
            logger.warning("a verdict is lost: %s; it is asked for again", reply[1])
            reply = self._ask_one(question)
            if reply[0] == LOST:
                logger.warning(
                    "a verdict is lost twice: %s; an abstention, not kept, takes its place", reply[1]
                )
        return reply

    def _ask_one(self, question: Sequence[Any]) -> Any:
        # There are as many threads as sockets: each has its own while it asks, so that replies cannot be
        # mixed up.
        channel = self._free.get()
        try:
            send_message(channel, list(question))
            self._num_asked[channel] += 1
            reply = receive_reply(channel, number=self._num_asked[channel])
        except OSError as error:
            with suppress(OSError):
                channel.shutdown(socket.SHUT_RDWR)  # a late reply would answer the next question
            raise CooperError(
                f"a rule verifier worker is gone ({error}); see its messages above and start again"
            ) from error
        finally:
            # A broken one too: the next question on it fails at once, where it would wait for a missing one.
            self._free.put(channel)
        if reply is None:
            raise CooperError(
                f"the rule verifier's processes ended (exit status {self.nursery.poll()}); "
                "see their messages above and start again"
            )
        return reply

    def close(self) -> None:
        """End the workers."""
        self._threads.shutdown()
        for channel in self.channels:
            channel.close()
        try:
            self.nursery.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self.nursery.kill()
            self.nursery.wait()

    def disown(self) -> None:
        """Close a forked child's copies of the sockets, or the parent's workers would outlive the parent."""
        for channel in self.channels:
            # close() of a socket would send the end to the worker, which is the parent's.
            os.close(channel.detach())


def receive_reply(channel: socket.socket, *, number: int) -> Any | None:
    """Receive the reply to the question of this number; None when the other side has closed.

    The loss of an earlier one is passed over: its process was killed when it had replied.
    """
    while (reply := receive_message(channel)) is not None:
        if reply[0] != LOST:
            return reply
        if reply[2:] in ([], [number]):
            return reply[:2]
    return None


def fit_workers(wanted: int, *, memory: int) -> int:
    """The number of workers, at least one, that fit into a container of so many bytes at their limits.

    There are fewer of them where memory is short, and none has less: what a comparison may take, and so its
    verdict, is the same everywhere.
    """
    fitting = max(1, int(memory * MEMORY_SHARE) // MAX_MEMORY_BYTES)
    if fitting < wanted:
        logger.warning(
            "%d verifier workers instead of %d: their limits of %d MiB each fit %d times into half of the "
            "%d MiB that this process may use",
            fitting,
            wanted,
            MAX_MEMORY_BYTES >> 20,
            fitting,
            memory >> 20,
        )
    return min(wanted, fitting)


class PooledVerifier:
    """The base of verifiers that ask a pool: a context manager that owns its worker processes.

    Workers start with the first question that needs them and end with the context, or with this process.
    Callable from any thread, and in a forked child, which gets workers of its own.
    """

    def __init__(
        self, module: str, config: RuleConfig, arguments: Sequence[str] = (), *, num_processes: int = 1
    ) -> None:
        """Ask `python -m module SECONDS ARGUMENTS`; `num_processes` verify at a time and share the cores."""
        self._module = module
        self._config = config
        self._arguments = arguments
        wanted = config.num_workers or max(1, usable_cores() // num_processes)
        self.num_workers = fit_workers(wanted, memory=usable_memory() // num_processes)
        self._lock = threading.Lock()
        self.pool: WorkerPool | None = None
        """None until a question needs it."""
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
            pool, self.pool, self._is_closed = self.pool, None, True
        if pool is not None:
            pool.close()

    def _check_open(self) -> None:
        if self._is_closed:
            raise CooperError("a verifier was asked for a verdict after it was closed; ask inside its `with`")

    def _ask(self, questions: Sequence[Sequence[Any]]) -> list[Any]:
        """A worker's reply to every question, in order."""
        if not questions:
            return []
        with self._lock:
            # Late: a verifier whose answers can all be compared in this process never forks.
            if self.pool is None:
                self.pool = self._start_pool()
            pool = self.pool
        return pool.ask(questions)

    def _start_pool(self) -> WorkerPool:
        limit = self._config.timeout_seconds
        try:
            return WorkerPool(
                self._module,
                [repr(limit), *self._arguments],
                num_workers=self.num_workers,
                limit_seconds=limit * (WALL_TO_CPU_SECONDS + 1),
            )
        except OSError as error:
            raise CooperError(
                f"the verifier's {self.num_workers} worker processes cannot be started ({error}); set "
                "labeling.rule.num_workers to fewer, or raise the limits on open files and processes"
            ) from error

    def _renew(self) -> None:
        """Give a forked child workers of its own. The parent's threads, which may hold the lock, are gone."""
        self._lock = threading.Lock()
        pool, self.pool = self.pool, None
        if pool is not None:
            pool.disown()


_verifiers: weakref.WeakSet[PooledVerifier] = weakref.WeakSet()


def _after_fork() -> None:
    for verifier in list(_verifiers):
        verifier._renew()  # pyright: ignore[reportPrivateUsage]


# A fork copies sockets and the state of locks, but none of the threads that would release them.
os.register_at_fork(after_in_child=_after_fork)


def _start_nursery(
    module: str, arguments: Sequence[str], sockets: Sequence[socket.socket]
) -> subprocess.Popen[bytes]:
    """A clean interpreter: forking this process, with its threads and tensors, would not be safe."""
    numbers = [each.fileno() for each in sockets]
    return subprocess.Popen(
        # -P: a file of the current folder, such as string.py, must not take the place of a library's.
        [sys.executable, "-P", "-m", module, *arguments, *map(str, numbers)],
        pass_fds=numbers,
        # Ctrl-C and a SIGTERM of the whole group are for this process: it may yet finish its step.
        process_group=0,
        env=_worker_environment(),
    )


def _worker_environment() -> dict[str, str]:
    """The environment of the workers: they parse hostile text, and get no key of this process."""
    # An allow-list: keys and tokens have names that nobody can list.
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in KEPT_VARIABLES or name.startswith(KEPT_PREFIXES)
    }
    return kept | {
        "PYTHONHASHSEED": "0",  # one order for sympy's sets and dicts in every process of every run
        "PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path),
    }
