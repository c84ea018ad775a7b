"""Threads that ask servers. Ctrl-C ends the process at once, whatever they wait for.

The threads of `concurrent.futures.ThreadPoolExecutor` are waited for when the interpreter ends, and one that
waits for a silent server would hold that up until its time-outs and retries are over.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import ParamSpec, TypeVar

from cooper_rl.errors import StoppedError

P = ParamSpec("P")
T = TypeVar("T")


class DaemonPool(Executor):
    """As `ThreadPoolExecutor`, but with daemon threads.

    The end of a `with` block waits for them, unless Ctrl-C or SIGTERM ended it, or its caller has gone.
    """

    def __init__(self, max_workers: int, thread_name_prefix: str = "") -> None:
        self._max_workers, self._name = max_workers, thread_name_prefix or "daemon_pool"
        self._queue: SimpleQueue[tuple[Future[object], Callable[[], object]] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._idle = threading.Semaphore(0)
        self._lock = threading.Lock()
        self._is_closed = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """See `Executor.submit`."""
        future: Future[T] = Future()
        with self._lock:
            if self._is_closed:
                raise RuntimeError("cannot schedule new futures after shutdown")
            self._queue.put((future, lambda: fn(*args, **kwargs)))  # pyright: ignore[reportArgumentType] Future[T] is one of an object
            if not self._idle.acquire(blocking=False) and len(self._threads) < self._max_workers:
                name = f"{self._name}_{len(self._threads)}"
                self._threads.append(threading.Thread(target=self._work, name=name, daemon=True))
                self._threads[-1].start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """See `Executor.shutdown`."""
        with self._lock:
            self._is_closed = True
            if cancel_futures:
                while (item := self._next()) is not None:
                    item[0].cancel()
            for _ in self._threads:
                self._queue.put(None)
        if wait:
            for thread in self._threads:
                thread.join()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown(wait=not is_hasty(kind), cancel_futures=is_hasty(kind))

    def _next(self) -> "tuple[Future[object], Callable[[], object]] | None":
        try:
            return self._queue.get_nowait()
        except Empty:
            return None

    def _work(self) -> None:
        while (item := self._queue.get()) is not None:
            future, call = item
            if future.set_running_or_notify_cancel():
                try:
                    result = call()
                except BaseException as error:
                    future.set_exception(error)
                else:
                    future.set_result(result)
                    del result
            del item, future, call  # an idle thread keeps no result alive
            self._idle.release()


def wait_at_most(seconds: float, call: Callable[[], object]) -> None:
    """Call in a daemon thread, for which nobody waits longer: it may ask a server that is away."""
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(seconds)


def is_hasty(kind: type[BaseException] | None) -> bool:
    """True if a block that ended in this way is not to wait for anybody."""
    return kind is not None and (issubclass(kind, StoppedError) or not issubclass(kind, Exception))
