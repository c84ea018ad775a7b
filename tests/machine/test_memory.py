"""Running out of memory, by allocations that no machine grants."""

import pytest
import torch

from cooper_rl.errors import TrainingError
from cooper_rl.machine.memory import explains_memory


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
