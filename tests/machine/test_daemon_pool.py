"""Threads that ask servers: as the standard library's, and gone with Ctrl-C."""

import signal
import threading
import time
from concurrent.futures import wait

import pytest

from cooper_rl.machine.daemon_pool import DaemonPool
from tests.interrupting import status_after_ctrl_c

ASK_FOR_EVER = """
import threading
from cooper_rl.machine.daemon_pool import DaemonPool

with DaemonPool(2) as pool:
    futures = [pool.submit(threading.Event().wait) for _ in range(5)]
    print("asked", flush=True)
    futures[0].result()
"""


def test_results_come_in_order_from_no_more_threads_than_allowed() -> None:
    names: set[str] = set()
    lock = threading.Lock()

    def square(number: int) -> int:
        with lock:
            names.add(threading.current_thread().name)
        time.sleep(0.002)
        return number**2

    with DaemonPool(3, "squares") as pool:
        assert list(pool.map(square, range(30))) == [number**2 for number in range(30)]
    assert names == {"squares_0", "squares_1", "squares_2"}


def test_the_end_of_the_block_waits_for_all_and_an_error_is_the_callers() -> None:
    done: list[int] = []

    def work(number: int) -> None:
        time.sleep(0.02)
        if number == 1:
            raise ValueError("one is wrong")
        done.append(number)

    with DaemonPool(2) as pool:
        futures = [pool.submit(work, number) for number in range(6)]
    assert sorted(done) == [0, 2, 3, 4, 5]
    with pytest.raises(ValueError, match="one is wrong"):
        futures[1].result()
    with pytest.raises(RuntimeError, match="after shutdown"):
        pool.submit(work, 7)


def test_what_has_not_begun_can_be_cancelled() -> None:
    hold = threading.Event()
    pool = DaemonPool(1)
    first, *others = [pool.submit(hold.wait) for _ in range(4)]
    wait([first], timeout=0.05)
    pool.shutdown(wait=False, cancel_futures=True)
    assert all(future.cancelled() for future in others)
    hold.set()
    assert first.result() is True


def test_ctrl_c_ends_a_process_whose_threads_wait_for_ever() -> None:
    assert status_after_ctrl_c(ASK_FOR_EVER, pause_seconds=0.1, timeout_seconds=10) == -signal.SIGINT
