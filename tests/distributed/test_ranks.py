"""What two processes tell each other, over gloo."""

import multiprocessing
from pathlib import Path
from typing import Any

import pytest
from torch import distributed

from cooper_rl.distributed.ranks import Ranks
from cooper_rl.errors import CooperError, ServerError

TIMEOUT_SECONDS = 120


def tell(rank: int, folder: Path, answers: Any) -> None:
    distributed.init_process_group("gloo", init_method=f"file://{folder}/met", rank=rank, world_size=2)
    ranks = Ranks(rank, 2, distributed.group.WORLD)

    def ask() -> str:
        raise ServerError(f"rank {rank} reaches nobody")

    try:
        ranks.first(ask)
    except CooperError as error:
        found = [f"{type(error).__name__}: {error}"]
    else:
        found = ["no error"]
    # They go on together afterwards.
    answers.put((rank, [*found, ranks.first(lambda: f"rank {rank} answers"), ranks.sums(rank + 1)[0]]))
    distributed.destroy_process_group()


@pytest.mark.slow
def test_an_error_of_the_first_rank_is_raised_on_all(tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    answers = spawn.Queue()
    processes = [spawn.Process(target=tell, args=(rank, tmp_path, answers)) for rank in range(2)]
    for process in processes:
        process.start()
    found = dict(answers.get(timeout=TIMEOUT_SECONDS) for _ in processes)
    for process in processes:
        process.join(TIMEOUT_SECONDS)
    expected = ["ServerError: rank 0 reaches nobody", "rank 0 answers", 3]
    assert found == {0: expected, 1: expected}
