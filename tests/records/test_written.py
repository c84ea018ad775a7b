"""A file of a folder of ours is written anew: killed anywhere, the folder can still be replaced."""

import os
import signal
from pathlib import Path

import pytest

from cooper_rl.errors import DataError
from cooper_rl.records import written
from cooper_rl.records.written import MARKER, check_replaceable, mark_written, rewrite
from tests.waiting import within


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "verify_rm"
    place.mkdir()
    for name in ("README.md", "config.json"):
        (place / name).write_text(f"{name} as it was")
    mark_written(place)
    return place


def test_a_file_is_written_anew_and_the_folder_stays_ours(folder: Path) -> None:
    rewrite(folder, "README.md", "anew")
    check_replaceable(folder)
    assert (folder / "README.md").read_text() == "anew"
    assert sorted(path.name for path in folder.iterdir()) == [MARKER, "README.md", "config.json"]
    assert [path.name for path in folder.parent.iterdir()] == ["verify_rm"]


@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_in_the_middle_it_leaves_nothing_that_is_not_ours(
    folder: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    note = written.write_report

    def note_and_die(*arguments: object) -> None:
        if when == "after":
            note(*arguments)  # pyright: ignore[reportArgumentType] as they came
        os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(written, "write_report", note_and_die)
    child = os.fork()
    if child == 0:
        rewrite(folder, "README.md", "anew")
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL
    monkeypatch.undo()
    check_replaceable(folder)
    rewrite(folder, "README.md", "anew")
    check_replaceable(folder)
    assert [path.name for path in folder.parent.iterdir()] == ["verify_rm"]


def test_somebody_elses_file_still_stands_in_the_way(folder: Path) -> None:
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(DataError, match=r"notes.txt: was not written by Cooper-RL"):
        check_replaceable(folder)


def test_a_pipe_of_somebody_stands_in_the_way_and_is_not_waited_for(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    with within(20), pytest.raises(DataError, match="pipe: was not written by Cooper-RL"):
        check_replaceable(folder)
    (folder / "pipe").rename(folder / "config.json")
    with (
        within(20),
        pytest.raises(DataError, match=r"config\.json: was not written by Cooper-RL, or changed"),
    ):
        check_replaceable(folder)
