import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
import torch

from cooper_rl.machine.cores import usable_cores
from cooper_rl.machine.threads import KEPT_KERNELS, limit_kept_kernels, limit_threads


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_a_small_model_on_the_cpu_gets_one_thread() -> None:
    limit_threads(torch.nn.Linear(8, 8))
    assert torch.get_num_threads() == 1


@pytest.mark.parametrize("surplus", [0, 3])
def test_a_large_model_gets_no_more_threads_than_cores(surplus: int) -> None:
    torch.set_num_threads(usable_cores() + surplus)
    limit_threads(torch.nn.Linear(4000, 4000))
    assert torch.get_num_threads() == usable_cores()


def test_kernels_are_kept_as_many_as_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "7")
    monkeypatch.delenv("LRU_CACHE_CAPACITY", raising=False)
    limit_kept_kernels()
    assert os.environ["ONEDNN_PRIMITIVE_CACHE_CAPACITY"] == "7"
    assert os.environ["LRU_CACHE_CAPACITY"] == str(KEPT_KERNELS)


ALLOCATES = """
import ctypes, sys
from cooper_rl.machine.threads import keep_freed_memory
if sys.argv[1] == "keep":
    keep_freed_memory()
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
class Info(ctypes.Structure):  # of mallinfo2; the ninth is what is free
    _fields_ = [(str(place), ctypes.c_size_t) for place in range(10)]
libc.mallinfo2.restype = Info
for block in [libc.malloc(2**24) for _ in range(8)]:
    libc.free(block)
print(getattr(libc.mallinfo2(), "8"))
"""


@pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="glibc 2.33 or later says what it keeps"
)
def test_freed_memory_is_kept_for_the_next_tensor() -> None:
    """Of eight blocks of 16 MiB."""
    kept, left = (
        int(subprocess.check_output([sys.executable, "-c", ALLOCATES, choice]))
        for choice in ("keep", "leave")
    )
    assert kept > 2**27
    assert left < 2**24
