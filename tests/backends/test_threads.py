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
