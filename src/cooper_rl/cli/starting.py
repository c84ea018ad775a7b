"""Ctrl-C while a program is imported, which takes a second, and more on a busy machine."""

import os
import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress

from cooper_rl.errors import EXIT_INTERRUPTED


@contextmanager
def ending_at_ctrl_c(program: str) -> Generator[None]:
    """In the block Ctrl-C ends the process with one line: there is nothing to save yet.

    No KeyboardInterrupt: a library that is imported may turn it into another error.
    """

    def end(*_: object) -> None:
        with suppress(OSError):
            os.write(2, f"\n{program}: interrupted\n".encode())
        os._exit(EXIT_INTERRUPTED)

    before = signal.getsignal(signal.SIGINT)
    # Elsewhere nobody may set a handler, and none is asked where Ctrl-C is ignored.
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
