"""The command lines where Ctrl-C comes early, and where standard output or standard error takes nothing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

STAGES = "cooper_rl"
PIPELINES = "pipelines"
FULL = Path("/dev/full")


def run_in_shell(words: str) -> subprocess.CompletedProcess[str]:
    """`sh` runs the Python program with these words and redirections."""
    # What is buffered is written as late as at the interpreter's end.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.run(
        ["sh", "-c", f'exec "$0" -m {words}', sys.executable],
        capture_output=True, text=True, timeout=120, check=False, env=environment,
    )  # fmt: skip


@pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize(
    "words",
    [
        f"{STAGES} --version",
        f"{STAGES} --help",
        f"{STAGES} show-config --preset laptop",
        f"{PIPELINES} --help",
        f"{PIPELINES} completion bash",
    ],
)
def test_a_full_standard_output_is_one_line_and_status_74(words: str) -> None:
    done = run_in_shell(f"{words} > /dev/full")
    assert done.returncode == 74
    assert "standard output cannot be written (No space left on device); free space" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("end", ["> /dev/full", ">&-"])
def test_an_error_of_use_stays_one_where_standard_output_takes_nothing(end: str) -> None:
    done = run_in_shell(f"{STAGES} show-config --preset nosuch {end}")
    assert done.returncode == 2
    assert done.stderr.startswith("cooper-rl show-config: unknown preset 'nosuch'")


@pytest.mark.parametrize("end", ["2> /dev/full", "2>&-"])
@pytest.mark.parametrize(
    "words",
    [f"{STAGES} show-config --preset nosuch", f"{STAGES} nosuch", f"{PIPELINES} compile --pipeline nosuch"],
)
def test_an_error_of_use_keeps_its_status_where_nobody_can_read_it(words: str, end: str) -> None:
    assert run_in_shell(f"{words} {end}").returncode == 2


def test_a_closed_standard_output_takes_everything() -> None:
    done = run_in_shell(f"{STAGES} show-config --preset laptop >&-")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_a_text_that_the_locale_has_not_is_shown_as_far_as_it_can_be(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "mine.toml").write_text('extends = "laptop"\ninstruction = "Löse 解"\n', encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", STAGES, "show-config", "--preset", str(tmp_path / "mine.toml")],
        capture_output=True, timeout=60, check=True, env=os.environ | {"PYTHONIOENCODING": encoding},
    )  # fmt: skip
    shown = {"ascii": rb"L\xf6se \u89e3", "latin-1": b"L\xf6se \\u89e3", "utf-8": "Löse 解".encode()}
    assert b"\ninstruction = " + shown[encoding] in done.stdout


def test_nobody_needs_to_read_to_the_end() -> None:
    done = run_in_shell(f"{STAGES} show-config --preset laptop | head -n 1")
    assert (done.stdout.count("\n"), done.stderr) == (1, "")


@pytest.mark.parametrize(
    ("program", "last_import"),
    [
        ("from cooper_rl.__main__ import main", "cooper_rl.cli.watch"),
        ("from pipelines.__main__ import main", "pipelines.options"),
        ("from cooper_rl.cli.pipelines import main; sys.exit(main())", "pipelines.options"),
    ],
)
def test_ctrl_c_during_the_imports_is_one_line_and_status_130(program: str, last_import: str) -> None:
    code = f"""
import signal
import sys

class Interrupting:
    def find_spec(self, name, *_):
        if name == {last_import!r}:
            signal.raise_signal(signal.SIGINT)
            raise RuntimeError("a library made another error of it")

sys.meta_path.insert(0, Interrupting())
{program}
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 130
    assert done.stderr.strip().endswith(": interrupted")
    assert len(done.stderr.strip().splitlines()) == 1
