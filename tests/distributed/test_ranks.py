"""What two processes tell each other, over gloo."""

import multiprocessing
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from torch import distributed

from cooper_rl.config.load import load
from cooper_rl.distributed.ranks import Ranks
from cooper_rl.errors import CooperError, ServerError
from cooper_rl.records.files import write_records
from cooper_rl.run.plan import Inputs, settle
from cooper_rl.tiny.problems import generate_problems

TIMEOUT_SECONDS = 120


def run_on_two(target: Callable[[int, Path, Any], None], folder: Path) -> dict[int, Any]:
    """What two processes put into their queue, by rank."""
    spawn = multiprocessing.get_context("spawn")
    answers = spawn.Queue()
    processes = [spawn.Process(target=target, args=(rank, folder, answers)) for rank in range(2)]
    for process in processes:
        process.start()
    found = dict(answers.get(timeout=TIMEOUT_SECONDS) for _ in processes)
    for process in processes:
        process.join(TIMEOUT_SECONDS)
    return found


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


def agree(rank: int, folder: Path, answers: Any) -> None:
    distributed.init_process_group("gloo", init_method=f"file://{folder}/met", rank=rank, world_size=2)
    ranks = Ranks(rank, 2, distributed.group.WORLD)

    def fail_on(failing: int, error: Exception) -> str:
        if rank == failing:
            raise error
        return f"rank {rank} answers"

    found: list[str] = []
    for failing, error in (
        (0, ServerError("the first reaches nobody")),
        (1, ServerError("the second reaches nobody")),
        (0, ValueError("a bug")),
        (2, ValueError("nobody fails")),
    ):
        try:
            found.append(ranks.agree(partial(fail_on, failing, error)))
        except Exception as raised:
            found.append(f"{type(raised).__name__}: {raised}")
    answers.put((rank, found))
    distributed.destroy_process_group()


@pytest.mark.slow
def test_ranks_agree_or_all_of_them_fail(tmp_path: Path) -> None:
    """Whichever rank an error is raised on, nobody waits for it, and they go on together afterwards."""
    found = run_on_two(agree, tmp_path)
    common = ["ServerError: the first reaches nobody", "ServerError: the second reaches nobody"]
    assert found[0] == [*common, "ValueError: a bug", "rank 0 answers"]
    assert found[1] == [
        *common,
        "LaunchError: rank 0 of 2 failed: ValueError: a bug; its own log says where",
        "rank 0 answers",
    ]


def collect(rank: int, folder: Path, answers: Any) -> None:
    """The second process meets an error that nobody foresaw; then both go on."""
    distributed.init_process_group("gloo", init_method=f"file://{folder}/met", rank=rank, world_size=2)
    ranks = Ranks(rank, 2, distributed.group.WORLD)
    try:
        ranks.collect(lambda: [rank] * (1 // (1 - rank)))
    except Exception as error:
        found = f"{type(error).__name__}: {error}"
    else:
        found = "no error"
    answers.put((rank, [found, ranks.collect(lambda: [rank] * (rank + 1))]))
    distributed.destroy_process_group()


@pytest.mark.slow
def test_ranks_collect_what_each_has_or_all_of_them_fail(tmp_path: Path) -> None:
    """Lists of another length on each rank, such as the rows of a trainer's processes."""
    error = "ZeroDivisionError: integer division or modulo by zero"
    found = run_on_two(collect, tmp_path)
    assert found[0] == [f"LaunchError: rank 1 of 2 failed: {error}; its own log says where", [[0], [1, 1]]]
    assert found[1] == [error, [[0], [1, 1]]]


def test_a_process_alone_meets_its_own_error() -> None:
    with pytest.raises(ZeroDivisionError):
        Ranks().collect(lambda: 1 // 0)


def settle_without_a_start(rank: int, folder: Path, answers: Any) -> None:
    distributed.init_process_group("gloo", init_method=f"file://{folder}/met", rank=rank, world_size=2)
    problems = folder / f"problems-{rank}.jsonl"
    write_records(problems, generate_problems(6, 0))
    side = dict.fromkeys(("replay", "examples", "held_out", "test", "attacks"))
    inputs = Inputs(folder, folder, problems, folder / "checkpoint", folder / "nowhere", side)
    with ExitStack() as stack:
        try:
            ranks = Ranks(rank, 2, distributed.group.WORLD)
            settle(load("laptop", ["cooper.gate=null"]), inputs, ranks, stack)
        except CooperError as error:
            answers.put((rank, f"{type(error).__name__}: {error}"))
    distributed.destroy_process_group()


@pytest.mark.slow
def test_a_first_rank_that_cannot_tell_where_the_run_stands_ends_the_others(tmp_path: Path) -> None:
    """The other rank reads no checkpoint. It gets the first one's error, and does not wait for its plan."""
    found = run_on_two(settle_without_a_start, tmp_path)
    assert found[0] == found[1]
    assert "DataError" in found[1]
    assert "nowhere: holds no checkpoint" in found[1]


@pytest.mark.slow
def test_an_error_of_the_first_rank_is_raised_on_all(tmp_path: Path) -> None:
    found = run_on_two(tell, tmp_path)
    expected = ["ServerError: rank 0 reaches nobody", "rank 0 answers", 3]
    assert found == {0: expected, 1: expected}
