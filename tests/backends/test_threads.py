import platform
import subprocess
import sys
from collections.abc import Iterator

import pytest
import torch

from cooper_rl.backends.threads import limit_threads


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_a_small_model_on_the_cpu_gets_one_thread() -> None:
    limit_threads(torch.nn.Linear(8, 8))
    assert torch.get_num_threads() == 1


def test_a_large_model_keeps_the_threads_that_it_finds() -> None:
    limit_threads(torch.nn.Linear(4000, 4000))
    assert torch.get_num_threads() == 2


ALLOCATES = """
import resource, sys, torch
from cooper_rl.backends.threads import keep_freed_memory
if sys.argv[1] == "keep":
    keep_freed_memory()
for turn in range(20):
    if turn == 10:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    tensors = [torch.ones(2**20) for _ in range(8)]  # of 4 MiB
    del tensors
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be told to keep memory")
def test_freed_memory_is_kept_for_the_next_tensor() -> None:
    faults = {
        choice: int(subprocess.check_output([sys.executable, "-c", ALLOCATES, choice]))
        for choice in ("keep", "leave")
    }
    assert faults["keep"] < faults["leave"] / 10
