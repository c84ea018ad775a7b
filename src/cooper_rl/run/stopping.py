"""SIGTERM between two steps: a task that is asked to end saves what it has and says so."""

import signal
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, Self

from cooper_rl.errors import StoppedError


class StopRequest:
    """A context manager that turns SIGTERM into a question that the loop asks between steps.

    A step that cannot end within the grace period is broken off: its checkpoint would come too late.
    Outside the main thread, which alone receives signals, nothing changes.
    """

    def __init__(self, grace_seconds: float) -> None:
        self.is_made = False
        self._grace_seconds = grace_seconds
        self._num_steps = 0
        self._longest_step = 0.0
        self._step_started: float | None = None
        self._previous: Any = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._previous = signal.signal(signal.SIGTERM, self._receive)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._previous is not None:
            signal.signal(signal.SIGTERM, self._previous)

    @contextmanager
    def step(self) -> Generator[None]:
        """The block is one step."""
        self._step_started = time.monotonic()
        try:
            yield
            seconds = time.monotonic() - self._step_started
            # The first step of a process compiles kernels: it took 92 s on an H100, later ones 5.
            self._longest_step = seconds if self._num_steps < 2 else max(self._longest_step, seconds)
            self._num_steps += 1
        finally:
            self._step_started = None

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self.is_made = True
        if self._step_started is None:
            return
        remaining = self._longest_step - (time.monotonic() - self._step_started)
        if remaining > self._grace_seconds:
            # Out of the handler, into whatever the main thread is at: the step ends there.
            raise StoppedError(
                f"SIGTERM in the middle of a step with about {remaining:.0f} s to go, more than "
                f"storage.grace_seconds={self._grace_seconds:g}: the step is given up and the last "
                "checkpoint stands; start again to continue from it"
            )
