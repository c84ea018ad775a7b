"""A bound on what may wait for ever, such as for the other end of a pipe."""

import signal
from collections.abc import Generator
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
