"""The live file of a run: every step once, whatever the process that wrote it came to."""

import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from cooper_rl.records.live import LiveFile, LiveHeader, find_live, live_path
from cooper_rl.schema.step_metrics import RolloutMetrics, StepMetrics
from tests.full_disk import no_file_beyond
from tests.waiting import within


def header(arm: str | None = None) -> LiveHeader:
    return LiveHeader(arm=arm, last_step=9, settings={"seed": "0"})


def row(step: int, reward: float = 0.5) -> StepMetrics:
    return StepMetrics(step=step, rollout=RolloutMetrics(verify_rm_reward=reward, rule_accuracy=0.25))


def write(checkpoint: Path, *steps: int, after: int = 0, reward: float = 0.5) -> None:
    live = LiveFile(checkpoint, header(), step=after)
    for step in steps:
        live.append(row(step, reward))
    live.close()


def test_a_step_can_be_read_as_soon_as_it_is_done(tmp_path: Path) -> None:
    live = LiveFile(tmp_path / "task" / "checkpoint", header("frozen"), step=0)
    for step in (1, 2):
        live.append(row(step))
        (found,) = find_live(tmp_path)
        assert [each.step for each in found.metrics] == list(range(1, step + 1))
    live.close()
    assert (found.header, found.path.name) == (header("frozen"), "checkpoint.live.jsonl")
    assert found.metrics[0] == row(1)


def test_a_continued_run_shows_no_step_twice(tmp_path: Path) -> None:
    """Killed in step 4 with a checkpoint of step 2: 3 and 4 are trained again, with other numbers."""
    write(tmp_path / "checkpoint", 1, 2, 3, 4)
    write(tmp_path / "checkpoint", 3, 4, 5, after=2, reward=0.75)
    (found,) = find_live(tmp_path)
    assert [each.step for each in found.metrics] == [1, 2, 3, 4, 5]
    assert [each.rollout.verify_rm_reward for each in found.metrics] == [0.5, 0.5, 0.75, 0.75, 0.75]
    assert len(live_path(tmp_path / "checkpoint").read_text().splitlines()) == 6


def test_a_process_killed_in_a_line_loses_that_step_alone(tmp_path: Path) -> None:
    write(tmp_path / "checkpoint", 1, 2)
    place = live_path(tmp_path / "checkpoint")
    place.write_bytes(place.read_bytes()[:-30])
    (found,) = find_live(tmp_path)
    assert [each.step for each in found.metrics] == [1]
    write(tmp_path / "checkpoint", 2, 3, after=1)
    (found,) = find_live(tmp_path)
    assert [each.step for each in found.metrics] == [1, 2, 3]


def test_a_file_that_is_no_live_file_is_left_out(tmp_path: Path) -> None:
    for name, text in {"a": "", "b": "{}\n", "c": json.dumps({"step": 1}) + "\n"}.items():
        live_path(tmp_path / name).write_text(text)
    assert find_live(tmp_path) == []


@pytest.mark.parametrize("line", ["[" * 100_000, "9" * 5000, "null", "[]", "\0" * 100, '{"step": {}}'])
def test_a_damaged_line_loses_that_step_alone(tmp_path: Path, line: str) -> None:
    """Nesting beyond Python's limits ended the page that watches, and a continued run."""
    write(tmp_path / "checkpoint", 1)
    with live_path(tmp_path / "checkpoint").open("a") as file:
        file.write(line + "\n")
    write(tmp_path / "checkpoint", 2, after=1)
    with live_path(tmp_path / "checkpoint").open("a") as file:
        file.write(line + "\n")
    (found,) = find_live(tmp_path)
    assert [each.step for each in found.metrics] == [1, 2]


def test_folders_that_come_and_go_are_passed_over(tmp_path: Path) -> None:
    """A checkpoint's staging folder is removed while the page of an experiment is made."""
    write(tmp_path / "checkpoint", 1)
    is_over = Event()

    def come_and_go() -> None:
        while not is_over.is_set():
            for place in (tmp_path / f".staging-{number}" for number in range(8)):
                (place / "tokenizers").mkdir(parents=True)
                shutil.rmtree(place)

    with ThreadPoolExecutor(1) as threads:
        work = threads.submit(come_and_go)
        try:
            assert all(len(find_live(tmp_path)) == 1 for _ in range(1000))
        finally:
            is_over.set()
        work.result()


def test_a_disk_that_refuses_is_warned_of_once_and_stops_nothing(tmp_path: Path, caplog) -> None:
    live = LiveFile(tmp_path / "checkpoint", header(), step=0)
    live.append(row(1))
    with no_file_beyond(0):
        live.append(row(2))
        live.append(row(3))
    live.append(row(4))
    live.close()
    assert [record.message.split(": ")[1] for record in caplog.records] == [
        "cannot be written, so this run cannot be watched; training goes on"
    ]
    (found,) = find_live(tmp_path)
    assert [each.step for each in found.metrics] == [1]
    (tmp_path / "file").write_text("no folder")
    LiveFile(tmp_path / "file" / "checkpoint", header(), step=0).append(row(1))
    assert len(caplog.records) == 2


def test_a_pipe_with_the_name_of_a_live_file_is_left_out(tmp_path: Path, caplog) -> None:
    """Who watches waited for its writer, and so did a run that wanted to write there."""
    os.mkfifo(tmp_path / "checkpoint.live.jsonl")
    with within(20):
        assert find_live(tmp_path) == []
        write(tmp_path / "checkpoint", 1, 2)
    (message,) = caplog.messages
    assert "checkpoint.live.jsonl: cannot be written, so this run cannot be watched" in message
