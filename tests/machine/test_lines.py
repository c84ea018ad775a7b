"""A file of lines loses at most the one that was being written, wherever its process ends."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cooper_rl.errors import ConfigError
from cooper_rl.machine.lines import LineFile
from tests.full_disk import no_file_beyond
from tests.waiting import within

LINES = [b"one", b"", b"drei \xc3\xa4", b"4" * 40]


def test_lines_are_read_back_in_order(tmp_path: Path) -> None:
    lines = LineFile(tmp_path / "folder" / "file")
    lines.append(*LINES[:2])
    assert list(lines) == LINES[:2]
    lines.append(*LINES[2:])
    lines.close()
    assert list(LineFile(tmp_path / "folder" / "file")) == LINES


@pytest.mark.parametrize("num_bytes", range(len(b"\n".join(LINES)) + 2))
def test_a_file_cut_anywhere_keeps_its_whole_lines_and_goes_on(tmp_path: Path, num_bytes: int) -> None:
    content = b"".join(line + b"\n" for line in LINES)
    (tmp_path / "file").write_bytes(content[:num_bytes])
    num_whole = content[:num_bytes].count(b"\n")
    lines = LineFile(tmp_path / "file")
    assert list(lines) == LINES[:num_whole]
    lines.append(*LINES[num_whole:])
    lines.close()
    assert (tmp_path / "file").read_bytes() == content


@pytest.mark.parametrize("num_bytes", range(4, 30))
def test_a_disk_that_is_full_takes_all_of_an_append_or_nothing(tmp_path: Path, num_bytes: int) -> None:
    lines = LineFile(tmp_path / "file", is_durable=True)
    lines.append(b"one")
    with no_file_beyond(num_bytes), pytest.raises(OSError, match="File too large"):
        lines.append(b"two", b"3" * 30)
    assert list(lines) == [b"one"]
    lines.append(b"two")
    lines.close()
    assert (tmp_path / "file").read_bytes() == b"one\ntwo\n"


def test_what_could_not_be_undone_is_undone_before_the_next_append(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = LineFile(tmp_path / "file")
    with monkeypatch.context() as patch:
        patch.setattr(LineFile, "_undo", refuse)
        with no_file_beyond(2), pytest.raises(OSError, match="disk is gone"):
            lines.append(b"lost")
        with pytest.raises(OSError, match="disk is gone"):
            lines.append(b"lost")
    lines.append(b"kept")
    assert list(lines) == [b"kept"]


def refuse(lines: LineFile) -> None:
    raise OSError("the disk is gone")


@pytest.mark.parametrize("is_durable", [False, True])
def test_a_file_written_anew_may_read_itself(tmp_path: Path, is_durable: bool) -> None:
    lines = LineFile(tmp_path / "file", is_durable=is_durable)
    lines.append(*LINES)
    lines.replace(line for line in lines if line)
    lines.append(b"last")
    assert list(lines) == [line for line in LINES if line] + [b"last"]
    lines.close()
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_file_that_cannot_be_written_anew_stays(tmp_path: Path) -> None:
    lines = LineFile(tmp_path / "file")
    lines.append(*LINES)
    with no_file_beyond(10), pytest.raises(OSError, match="File too large"):
        lines.replace([b"x" * 50])
    lines.append(b"last")
    assert list(lines) == [*LINES, b"last"]
    assert [path.name for path in tmp_path.iterdir()] == ["file"], "what was drafted holds no room"


def test_a_file_of_others_beside_one_that_is_written_anew_stays(tmp_path: Path) -> None:
    lines = LineFile(tmp_path / "run.live")
    (tmp_path / "run.draft").write_text("mine")
    lines.replace([b"new"])
    assert (tmp_path / "run.draft").read_text() == "mine"


def test_a_draft_of_a_process_that_was_killed_goes_when_the_file_is_opened(tmp_path: Path) -> None:
    """On a full disk nothing could be appended, and so nothing be written anew."""
    killed = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from cooper_rl.machine.lines import LineFile\n"
        "def lines():\n"
        "    yield b'x' * 100\n"
        "    os.kill(os.getpid(), 9)\n"
        "LineFile(Path(sys.argv[1])).replace(lines())\n"
    )
    subprocess.run([sys.executable, "-c", killed, str(tmp_path / "file")], check=False)
    assert len(list(tmp_path.iterdir())) == 3
    LineFile(tmp_path / "file").close()
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_an_exclusive_file_has_one_writer(tmp_path: Path) -> None:
    """The second one cuts nothing: what it would take for a torn line is being written."""
    lines = LineFile(tmp_path / "file", is_exclusive=True)
    lines.append(b"one")
    with (tmp_path / "file").open("ab") as file:
        file.write(b"tw")
    with pytest.raises(ConfigError, match="file: another process works here"):
        LineFile(tmp_path / "file", is_exclusive=True)
    assert (tmp_path / "file").read_bytes() == b"one\ntw"
    lines.close()
    assert list(LineFile(tmp_path / "file", is_exclusive=True)) == [b"one"]


def test_a_pipe_in_the_place_of_the_file_is_refused_at_once(tmp_path: Path) -> None:
    """It was opened, which waits for a reader."""
    os.mkfifo(tmp_path / "file")
    with within(20), pytest.raises(FileExistsError, match=r"what has this name is no regular file: .*file"):
        LineFile(tmp_path / "file")
