"""Drafts beside outputs: gone at the end, or with the next start; nobody else's files are touched."""

import fcntl
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cooper_rl.errors import ModelError
from cooper_rl.machine.drafts import draft_beside, replaced_folders, settle_drafts
from cooper_rl.models.policy import load_policy, save_folder
from cooper_rl.records.files import atomic_path
from cooper_rl.records.written import copy_written, remove_written
from tests.machine.owners import ending, start_owner
from tests.waiting import within

WRITER = """
import sys, time
from pathlib import Path
from cooper_rl.records.files import atomic_path
with atomic_path(Path(sys.argv[1])) as draft:
    draft.write_bytes(b"x" * 1000)
    print(draft, flush=True)
    time.sleep(600)
"""


class Part:
    """What saves a file, as a model and its tokenizer do."""

    def __init__(self, name: str, text: str) -> None:
        self.name, self.text = name, text

    def save_pretrained(self, folder: Path) -> None:
        (folder / self.name).write_text(self.text)


def save(path: Path, text: str) -> None:
    save_folder(Part("config.json", text), Part("tokenizer.json", text), path)


def end_of_child(work: Callable[[], None], *, near: Path, event: str, fatal: int) -> int:
    """Do it in a child that is killed at an event's n-th time below a folder; returns its exit status."""
    pid = os.fork()  # and no new interpreter: the imports would take minutes for all cases
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    count = 0

    def audit(name: str, arguments: tuple[object, ...]) -> None:
        nonlocal count
        if name == event and str(near) in str(arguments[0]):
            count += 1
            if count == fatal:
                os.kill(os.getpid(), signal.SIGKILL)

    try:
        sys.addaudithook(audit)
        work()
        os._exit(0)
    finally:
        os._exit(1)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_draft_is_gone_when_its_block_ends(tmp_path: Path) -> None:
    def fail() -> None:
        with draft_beside(tmp_path / "out" / "rows.jsonl") as draft:
            draft.partial.write_text("half")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert names(tmp_path / "out") == []


def test_a_killed_writers_draft_is_removed_by_the_next_write_and_no_living_ones(tmp_path: Path) -> None:
    for name in ("my.partial", "problems.jsonl.0123abcd.partial", ".cooper-rl-0123abcd.draft"):
        (tmp_path / name).write_text("mine")
    killed, left = start_owner(WRITER, str(tmp_path / "problems.jsonl"))
    living, used = start_owner(WRITER, str(tmp_path / "problems.jsonl"))
    with ending(killed, living):
        killed.kill()
        killed.wait()
        assert left.is_file()
        with atomic_path(tmp_path / "report.json") as draft:
            draft.write_text("{}")
        assert not left.exists()
        assert used.read_bytes() == b"x" * 1000
    settle_drafts(tmp_path)
    assert names(tmp_path) == [
        ".cooper-rl-0123abcd.draft", "my.partial", "problems.jsonl.0123abcd.partial", "report.json",
    ]  # fmt: skip
    assert (tmp_path / "problems.jsonl.0123abcd.partial").read_text() == "mine"


@pytest.mark.parametrize("fatal", range(1, 6))
@pytest.mark.parametrize("event", ["os.rename", "os.remove", "open"])
def test_a_model_whose_replacement_was_killed_anywhere_is_the_old_or_the_new_one_after_the_next_start(
    tmp_path: Path, event: str, fatal: int
) -> None:
    """Killed at each of its renames, removals and opened files. The next start removes everything else."""
    path = tmp_path / "policy"
    save(path, "old")
    ended = end_of_child(lambda: save(path, "new"), near=tmp_path, event=event, fatal=fatal)
    assert ended in {0, -signal.SIGKILL}
    settle_drafts(tmp_path, remove_old=remove_written)
    assert names(tmp_path) == ["policy"]
    texts = {(path / name).read_text() for name in ("config.json", "tokenizer.json")}
    assert texts in ({"old"}, {"new"})
    save(path, "newest")
    assert names(tmp_path) == ["policy"]
    assert (path / "config.json").read_text() == "newest"


def kill_between_renames(path: Path) -> None:
    save(path, "old")
    ended = end_of_child(
        lambda: save(path, "new"), near=path.parent, event="os.rename", fatal=3
    )  # the first is the list's of its files
    assert ended == -signal.SIGKILL


def test_between_two_renames_the_old_model_is_named_and_the_new_one_is_put_in_place(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "policy"
    kill_between_renames(path)
    with pytest.raises(
        ModelError, match=r"policy: no config.json there; it was moved to .*policy\.\w{8}\.old, by"
    ):
        load_policy(path, device="cpu")  # pyright: ignore[reportArgumentType] refused before
    settle_drafts(tmp_path, remove_old=remove_written)
    assert names(tmp_path) == ["policy"]
    assert (path / "config.json").read_text() == "new"
    assert f"{path}: put in place; a run was killed while it replaced it" in caplog.messages


def test_a_copy_takes_the_place_of_a_model_whose_replacement_was_killed(tmp_path: Path) -> None:
    """The next start may be one that puts its last good weights there, without any other call before."""
    save(tmp_path / "best", "best")
    kill_between_renames(tmp_path / "models" / "policy")
    copy_written(tmp_path / "best", tmp_path / "models" / "policy")
    assert names(tmp_path / "models") == ["policy"]
    assert (tmp_path / "models" / "policy" / "config.json").read_text() == "best"


def test_a_replaced_model_with_files_of_others_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "policy"
    kill_between_renames(path)
    (old,) = tmp_path.glob("policy.*.old")
    (old / "thesis.txt").write_text("mine")
    copy_written(path.with_name(old.name), tmp_path / "copy")
    assert (old / "thesis.txt").read_text() == "mine"
    assert (path / "config.json").read_text() == "new"
    assert any("thesis.txt: was not written by Cooper-RL" in line for line in caplog.messages)


def test_a_replacement_that_fails_puts_the_old_one_back(tmp_path: Path) -> None:
    def replace() -> None:
        with draft_beside(tmp_path / "policy", remove_old=remove_written) as (path, partial, old):
            path.rename(old)
            partial.rename(path)  # somebody removed it

    save(tmp_path / "policy", "old")
    with pytest.raises(FileNotFoundError):
        replace()
    assert names(tmp_path) == ["policy"]
    assert (tmp_path / "policy" / "config.json").read_text() == "old"


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    tree=st.dictionaries(
        st.sampled_from([
            "a.partial", "rows.0123abcd.partial", "rows.0123abcd.old", "rows", ".cooper-rl-0123abcd.draft",
            ".cooper-rl-ffffffff.draft", ".cooper-rl-x.draft", "rows.ffffffff.partial",
        ]),
        st.sampled_from(["", "mine", "rows\n", "A draft of Cooper-RL", "A draft of Cooper-RL, removed by its "
                         "next start when its owner is gone, of ../rows\n"]),
    ),
    is_folder=st.booleans(),
)  # fmt: skip
def test_no_file_of_anybody_else_is_touched(tmp_path: Path, tree: dict[str, str], is_folder: bool) -> None:
    folder = tmp_path / os.urandom(8).hex()
    folder.mkdir()
    for name, text in tree.items():
        if is_folder and not name.startswith("."):
            (folder / name).mkdir()
            (folder / name / "file").write_text(text)
        else:
            (folder / name).write_text(text)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    settle_drafts(folder, remove_old=remove_written)
    with atomic_path(folder / "report.json") as draft:
        draft.write_text("{}")
    (folder / "report.json").unlink()
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def write_and_die(path: Path) -> None:
    with atomic_path(path) as draft:
        draft.write_text("half")
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("ending", ["", "s.jsonl"])
@pytest.mark.parametrize(
    "name", ["n" * 238, "n" * 239, "n" * 248, "ä" * 119 + "n", "ä" * 124, "a\nb\n", "\udcff" * 248]
)
def test_an_output_of_any_name_is_written_and_its_draft_does_not_outlive_a_kill(
    tmp_path: Path, name: str, ending: str
) -> None:
    """A draft's name is longer than its output's, and was too long where that has more than 238 bytes."""
    path = tmp_path / f"{name}{ending}"
    assert end_of_child(lambda: write_and_die(path), near=path, event="", fatal=0) == -signal.SIGKILL
    assert len(names(tmp_path)) == 2
    with atomic_path(path) as draft:
        assert len(names(tmp_path)) == 1, "the mark of the new draft alone"
        draft.write_text("whole")
    assert names(tmp_path) == [path.name]
    assert path.read_text() == "whole"


def test_a_mark_of_a_writer_that_was_killed_before_it_named_anything_is_removed(tmp_path: Path) -> None:
    pid = os.fork()
    if pid == 0:
        sys.addaudithook(
            lambda name, _: os.kill(os.getpid(), signal.SIGKILL) if name == "fcntl.flock" else None
        )
        write_and_die(tmp_path / "rows.jsonl")
    os.waitpid(pid, 0)
    (left,) = names(tmp_path)
    assert (tmp_path / left).read_bytes() == b""
    (tmp_path / ".cooper-rl-0123abcd.draft").touch(0o644)
    settle_drafts(tmp_path)
    assert names(tmp_path) == [".cooper-rl-0123abcd.draft"]


def test_a_writer_whose_mark_was_taken_for_a_killed_ones_makes_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other process comes between the mark's creation and its lock."""
    taken: list[str] = []
    flock = fcntl.flock

    def settle_first(handle: int, operation: int) -> None:
        monkeypatch.setattr(fcntl, "flock", flock)
        taken.extend(names(tmp_path))
        settle_drafts(tmp_path)
        flock(handle, operation)

    monkeypatch.setattr(fcntl, "flock", settle_first)
    with atomic_path(tmp_path / "rows.jsonl") as draft:
        (mark,) = names(tmp_path)
        assert [mark] != taken
        draft.write_text("{}")
    assert len(taken) == 1
    assert names(tmp_path) == ["rows.jsonl"]


def test_drafts_of_long_names_with_one_beginning_are_two(tmp_path: Path) -> None:
    first, second = (tmp_path / ("n" * 250 + end) for end in "ab")
    with atomic_path(first) as one, atomic_path(second) as two:
        one.write_text("one")
        two.write_text("two")
    assert (first.read_text(), second.read_text()) == ("one", "two")


def test_a_pipe_with_the_name_of_a_mark_is_passed_over(tmp_path: Path) -> None:
    """Its text was waited for, by every writer into the folder."""
    pipe = tmp_path / ".cooper-rl-0123abcd.draft"
    os.mkfifo(pipe)
    with within(20):
        with atomic_path(tmp_path / "rows.jsonl") as draft:
            draft.write_text("{}")
        assert replaced_folders(tmp_path / "policy") == []
    assert pipe.is_fifo()
    assert names(tmp_path) == [pipe.name, "rows.jsonl"]
