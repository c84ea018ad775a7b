"""Fixtures of many rooms. Each imports what it makes: a room without models collects without torch."""

import gc
import os
import signal

# Workers share the cores: a second thread in each only waits. Child processes inherit this too.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Numbers are those of a CPU on every machine; `make gpu-check` sets this for the tests of a GPU.
if os.environ.get("COOPER_TESTS_ON_GPU") != "1":
    os.environ["CUDA_VISIBLE_DEVICES"] = ""

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING

import pytest

from cooper_rl.machine.cores import usable_cores
from cooper_rl.machine.memory import usable_memory
from tests.stand_ins.fixtures import bucket, gateway, s3_server
from tests.stand_ins.verify_rm import serve

if TYPE_CHECKING:
    from cooper_rl.models.policy import Policy
    from cooper_rl.models.verify_rm import VerifyRM

__all__ = ["bucket", "gateway", "s3_server", "serve"]

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts background jobs with Ctrl-C ignored, which processes that tests interrupt would inherit.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int | None:
    """`-n auto` is two workers a core, since a test waits for other processes half of its time.

    A worker and the processes that it starts take up to 2 GiB of memory. With more than sixteen workers the
    longest file decides how long the tests take.
    """
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None  # xdist reads it
    return max(1, min(2 * usable_cores(), usable_memory() // 2**31, 16))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for garbage once, among what stays to the end: modules and thousands of tests."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session")
def make_policy() -> "Callable[[int], Policy]":
    """A random policy by seed."""
    from tests.tiny_models import random_policy

    return random_policy


@pytest.fixture(scope="session")
def make_verify_rm() -> "Callable[[int], VerifyRM]":
    """A random VerifyRM by seed."""
    from tests.tiny_models import random_verify_rm

    return random_verify_rm


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server's silence is spoken of after a tenth of a second."""
    from cooper_rl.waiting import Waiting

    monkeypatch.setitem(Waiting.__init__.__kwdefaults__, "first_seconds", 0.1)
