"""Rows of two processes of a trainer, over gloo."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from torch import distributed

from cooper_rl.api.processes import gather_rows
from cooper_rl.api.rows import Row
from cooper_rl.distributed.ranks import Ranks
from tests.distributed.test_ranks import run_on_two


def gather(rank: int, folder: Path, answers: Any) -> None:
    """The second process meets an error that nobody foresaw; then both go on."""
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/met", rank=rank, world_size=2, timeout=timedelta(seconds=20)
    )
    ranks = Ranks(rank, 2, distributed.group.WORLD)

    def read() -> list[Row]:
        return [Row("q", "1", "2", None)] * (1 // (1 - rank))

    try:
        gather_rows(ranks, read)
    except Exception as error:
        found = f"{type(error).__name__}: {error}"
    else:
        found = "no error"
    answers.put((rank, [found, len(gather_rows(ranks, lambda: []))]))


@pytest.mark.slow
def test_an_unforeseen_error_of_one_process_is_told_to_all(tmp_path: Path) -> None:
    error = "ZeroDivisionError: integer division or modulo by zero"
    found = run_on_two(gather, tmp_path)
    assert found[0] == [f"LaunchError: process 1 of 2 failed: {error}; its own log says where", 2]
    assert found[1] == [error, 2]


def test_a_process_alone_meets_its_own_error() -> None:
    with pytest.raises(ZeroDivisionError):
        gather_rows(Ranks(), lambda: [Row("q", "1", "2", None)] * (1 // 0))
