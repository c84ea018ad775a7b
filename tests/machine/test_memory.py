"""The memory that may be used, and running out of it by allocations that no machine grants."""

import os
from pathlib import Path

import pytest
import torch

from cooper_rl.errors import TrainingError
from cooper_rl.machine.memory import explains_memory, usable_memory

MACHINE = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, MACHINE),
        ({"memory.max": "max\n"}, MACHINE),
        ({"memory.max": "1073741824\n"}, 1 << 30),
        ({"memory.max": "nonsense\n"}, MACHINE),
        ({"memory/memory.limit_in_bytes": "1073741824\n"}, 1 << 30),
        ({"memory/memory.limit_in_bytes": "9223372036854771712\n"}, MACHINE),
    ],
)
def test_a_containers_limit_counts_where_it_is_less_than_the_machines_memory(
    tmp_path: Path, files: dict[str, str], expected: int
) -> None:
    (tmp_path / "memory").mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert usable_memory(tmp_path) == expected


def test_memory_that_torch_cannot_have_says_what_to_lower() -> None:
    with (
        pytest.raises(TrainingError, match=r"^scoring: out of memory \(.*tried to allocate .*\); lower x=9$"),
        explains_memory("scoring", "lower x=9"),
    ):
        torch.empty(10**15)


def test_memory_that_python_cannot_have_says_what_to_lower() -> None:
    with (
        pytest.raises(TrainingError, match=r"^scoring: out of memory; lower x=9$"),
        explains_memory("scoring", "lower x=9"),
    ):
        bytearray(10**17)


def test_what_cuda_says_is_known() -> None:
    for said in ("CUDA out of memory. Tried to allocate 2.00 GiB", "CUBLAS_STATUS_ALLOC_FAILED when calling"):
        with pytest.raises(TrainingError, match=r"lower x=9$"), explains_memory("scoring", "lower x=9"):
            raise RuntimeError(said)


def test_another_error_passes() -> None:
    with pytest.raises(RuntimeError, match=r"^shapes differ$"), explains_memory("scoring", "lower x=9"):
        raise RuntimeError("shapes differ")
