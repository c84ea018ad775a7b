"""Kills from outside, as the kernel's when memory is short, of the processes that judge a text."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psutil

from cooper_rl.verdicts.pool import PooledVerifier


@contextmanager
def killing(verifier: PooledVerifier, *, times: int, number: int = signal.SIGKILL) -> Iterator[list[int]]:
    """End so many processes of a verifier that has workers, each in the midst of a text; gives their ids."""
    assert verifier.pool is not None
    nursery = psutil.Process(verifier.pool.nursery.pid)
    killed: list[int] = []
    is_over = threading.Event()

    def kill() -> None:
        while len(killed) < times and not is_over.wait(0.02):
            for process in nursery.children(recursive=True):
                with suppress(psutil.Error):  # it has just ended
                    # A worker waits without CPU time, and for a program as long as that runs.
                    if process.cpu_times().user > 0.1 and process.pid not in killed:
                        process.send_signal(number)
                        killed.append(process.pid)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield killed
    finally:
        is_over.set()
        thread.join()
