"""A graph whose tasks run at once, through kfp.local itself: order, failures, branches, output."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kfp import compiler, dsl
from kfp.pipeline_spec import pipeline_spec_pb2

from pipelines.local.fork import has_gpu
from pipelines.local.graph import ready
from pipelines.local.lines import read_line
from tests.pipelines.worker import Ended, run_worker


def component(function: Callable[..., Any]) -> Any:
    return dsl.component(base_image="python:3.11", install_kfp_package=False)(function)


@component
def wait_for(own: str, other: str, folder: str) -> str:
    """Leave a mark, and wait for another's: only tasks that run at once can wait for each other."""
    import time
    from pathlib import Path

    (Path(folder) / own).touch()
    deadline = time.monotonic() + 60
    while not (Path(folder) / other).exists():
        assert time.monotonic() < deadline, f"{other} did not begin"
        time.sleep(0.05)
    print(f"{own} has met {other}")  # noqa: T201 - what a component prints is what is tested
    return own


@component
def work_alone(number: int, folder: str):
    """Fail where another turn is at work."""
    import time
    from pathlib import Path

    busy = Path(folder) / "busy"
    busy.mkdir()
    time.sleep(0.5)
    busy.rmdir()


@component
def say(text: str, after: str = "", is_good: bool = True) -> str:
    """Hand a text on, or fail."""
    assert is_good, "as asked"
    return after + text


@component
def say_all(texts: list) -> str:
    """Hand texts on."""
    return " ".join(texts)


@component
def train_cooper(text: str) -> str:
    """A task with the name of the stage that has the highest limit."""
    return text


@component
def keep(status: dsl.PipelineTaskFinalStatus, folder: str):
    """The exit task: how the others ended."""
    from pathlib import Path

    (Path(folder) / "end").write_text(status.state)


def run(pipeline: Callable[..., None], folder: Path, *, at_once: int = 2, **options: Any) -> Ended:
    """Compile a pipeline and run it."""
    path = folder / "pipeline.yaml"
    compiler.Compiler().compile(dsl.pipeline(name="tried")(pipeline), str(path))
    return run_worker(
        path, {"folder": str(folder)}, root=folder / "root", run="tried-run", tasks_at_once=at_once, **options
    )


def started(printed: str) -> list[str]:
    """Tasks in the order in which they began."""
    lines = [read_line(line) for line in printed.splitlines()]
    return [line.task for line in lines if line.is_log and "Executing task" in line.text]


def test_tasks_that_do_not_need_each_other_run_at_once_and_their_lines_are_named(tmp_path: Path) -> None:
    def two(folder: str) -> None:
        with dsl.ExitHandler(keep(folder=folder)):
            one = wait_for(own="one", other="two", folder=folder)
            other = wait_for(own="two", other="one", folder=folder)
            say(text=one.output, after=other.output)

    status, printed = run(two, tmp_path)
    assert status == 0, printed
    lines = [read_line(line) for line in printed.splitlines()]
    assert ("wait-for", "one has met two", False) in lines
    assert ("wait-for-2", "two has met one", False) in lines
    assert started(printed)[2:] == ["say", "keep"]
    assert (tmp_path / "end").read_text() == "SUCCEEDED"


def test_of_tasks_that_could_start_the_one_before_the_longest_chain_is_first(tmp_path: Path) -> None:
    def chain(folder: str) -> None:
        with dsl.ExitHandler(keep(folder=folder)):
            say(text="alone")
            first = say(text="first")
            say(text="third", after=say(text="second", after=first.output).output)

    status, printed = run(chain, tmp_path, at_once=1)
    assert status == 0, printed
    assert started(printed) == ["say-2", "say-3", "say", "say-4", "keep"]


def test_a_stage_that_takes_long_begins_before_a_short_one(tmp_path: Path) -> None:
    def unequal(folder: str) -> None:
        with dsl.ExitHandler(keep(folder=folder)):
            say(text="short")
            train_cooper(text="long")

    status, printed = run(unequal, tmp_path, at_once=1)
    assert status == 0, printed
    assert started(printed) == ["train-cooper", "say", "keep"]


def test_what_needs_a_failed_task_is_skipped_and_all_else_runs(tmp_path: Path) -> None:
    def failing(folder: str) -> None:
        with dsl.ExitHandler(keep(folder=folder)):
            bad = say(text="bad", is_good=False)
            say(text="skipped", after=say(text="skipped", after=bad.output).output)
            say(text="alone")

    status, printed = run(failing, tmp_path)
    assert status == 1
    assert sorted(started(printed)) == ["keep", "say", "say-4"]
    assert "Inner task failed: \x1b[96m'say'\x1b[0m" in printed
    assert (tmp_path / "end").read_text() == "FAILED"


def test_a_graph_of_many_tasks_that_all_need_each_other_starts_at_once() -> None:
    """Twelve layers of three have 3 ** 12 chains, too many to look at each."""
    tasks: dict[str, Any] = {}
    for number in range(36):
        task: Any = pipeline_spec_pb2.PipelineTaskSpec()
        task.component_ref.name = "comp-say"
        task.dependent_tasks.extend(name for name in tasks if int(name) // 3 == number // 3 - 1)
        tasks[str(number)] = task
    began = time.monotonic()
    assert ready(tasks, ()) == ["0", "1", "2"]
    assert time.monotonic() - began < 1


def test_a_gpu_is_found_by_its_device(tmp_path: Path) -> None:
    (tmp_path / "nvidiactl").touch()
    assert not has_gpu(tmp_path)
    (tmp_path / "nvidia0").touch()
    assert has_gpu(tmp_path)


def test_a_long_path_of_temporary_files_ends_no_run(tmp_path: Path) -> None:
    """A socket's path has 107 bytes at most, and the fork server's lies below TMPDIR."""

    def two(folder: str) -> None:
        say(text=say(text=folder).output)

    place = tmp_path / ("t" * 100)
    place.mkdir()
    status, printed = run(two, tmp_path, forks=True, environment={"TMPDIR": str(place)})
    assert status == 0, printed
    assert "say-2" in printed


def test_a_loop_has_no_more_turns_at_once_than_it_says(tmp_path: Path) -> None:
    def looped(folder: str) -> None:
        with dsl.ParallelFor([1, 2, 3], parallelism=1) as number:
            work_alone(number=number, folder=folder)

    status, printed = run(looped, tmp_path, at_once=3)
    assert status == 0, printed


def test_the_lines_of_a_loops_tasks_name_the_turn(tmp_path: Path) -> None:
    """By the last setting of its item, which names an arm, or else by its number."""

    def looped(folder: str) -> None:
        settings: Any = [["cooper.seed=0", "storage.arm=rule_0"], ["storage.arm=cooper_1"], ["shard={of=2}"]]
        with dsl.ParallelFor(settings) as arm:
            begun = say_all(texts=arm)
            say(text=begun.output)

    status, printed = run(looped, tmp_path, at_once=2)
    assert status == 0, printed
    turns = {read_line(line).task for line in printed.splitlines()}
    assert sorted(turn for turn in turns if turn.startswith("say-all")) == [
        "say-all 3",
        "say-all cooper-1",
        "say-all rule-0",
    ]
    assert sorted(task for task in started(printed) if task.startswith("say ")) == [
        "say 3",
        "say cooper-1",
        "say rule-0",
    ]
