"""Kills from outside, as the kernel's when memory is short, of the processes that judge a text."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import psutil

from cooper_rl.verdicts.pool import PooledVerifier


def has_worked(process: psutil.Process) -> bool:
    """True in the midst of a text: a worker waits without CPU time, for a program as long as that runs."""
    return process.cpu_times().user > 0.1


def holds_program(process: psutil.Process) -> bool:
    """True for the process of a request while its program runs in a child of it."""
    return bool(process.children())


@contextmanager
def killing(
    verifier: PooledVerifier,
    *,
    times: int,
    number: int = signal.SIGKILL,
    is_meant: Callable[[psutil.Process], bool] = has_worked,
) -> Iterator[list[int]]:
    """End so many processes of a verifier that has workers, of those that are meant; gives their ids."""
    assert verifier.pool is not None
    nursery = psutil.Process(verifier.pool.nursery.pid)
    killed: list[int] = []
    is_over = threading.Event()

    def kill() -> None:
        while len(killed) < times and not is_over.wait(0.02):
            for process in nursery.children(recursive=True):
                with suppress(psutil.Error):  # it has just ended
                    if len(killed) < times and process.pid not in killed and is_meant(process):
                        process.send_signal(number)
                        killed.append(process.pid)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield killed
    finally:
        is_over.set()
        thread.join()
