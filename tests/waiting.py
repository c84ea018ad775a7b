"""Waits that end: a bound on what may wait for ever, such as for the other end of a pipe, and a wait for what
another thread or process does."""

import signal
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def within(seconds: float) -> Generator[None]:
    """The block fails after so many seconds, whatever it waits for; in the main thread."""

    def fail(_number: int, _frame: FrameType | None) -> None:
        raise AssertionError(f"it still waits after {seconds:g} s")  # no OSError, which may be passed over

    before = signal.signal(signal.SIGALRM, fail)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def wait_until(is_so: Callable[[], object], *, seconds: float = 120) -> None:
    """Return once it is so; it fails after so many seconds."""
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, f"it is not so after {seconds:g} s"
        time.sleep(0.01)
