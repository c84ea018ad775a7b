"""Python's parser in several threads."""

import ast
import gc
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from cooper_rl.machine.parsing import parse_python

SOURCE = "def half(x):\n    return [x / 2, (x, {x: -x})]\n" * 100


@pytest.fixture
def collected_often() -> Iterator[None]:
    """A collection of garbage, which may run anybody's code, lets other threads go on."""

    def pause(*_: object) -> None:
        time.sleep(0)

    before = gc.get_threshold()
    gc.set_threshold(100)
    gc.callbacks.append(pause)
    yield
    gc.callbacks.remove(pause)
    gc.set_threshold(*before)


@pytest.mark.usefixtures("collected_often")
def test_two_threads_parse_at_the_same_time() -> None:
    with ThreadPoolExecutor(2) as threads:
        trees = list(threads.map(parse_python, [SOURCE] * 20))
    assert {ast.dump(tree) for tree in trees} == {ast.dump(ast.parse(SOURCE))}


def test_a_child_that_was_forked_while_a_thread_parses_parses_too() -> None:
    is_over = threading.Event()

    def parse() -> None:
        while not is_over.is_set():
            parse_python(SOURCE)

    thread = threading.Thread(target=parse)
    thread.start()
    try:
        for _ in range(20):
            pid = os.fork()
            if pid == 0:
                parse_python("1 + 1", mode="eval")
                os._exit(0)
            assert _ends(pid), "it waits for a lock that nobody holds"
    finally:
        is_over.set()
        thread.join()


def _ends(pid: int, *, seconds: float = 30) -> bool:
    """Whether a child ends by itself."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if os.waitpid(pid, os.WNOHANG) != (0, 0):
            return True
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return False
