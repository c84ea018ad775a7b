"""What stands for a C compiler in the image for GPUs hands out one file, and leaves others to gcc."""

import shutil
import subprocess
from pathlib import Path

import pytest

CC = Path(__file__).parent.parent.parent / "images" / "gpu" / "cc"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "cc").write_bytes(CC.read_bytes())
    (tmp_path / "cc").chmod(0o755)
    (tmp_path / "driver.c").write_text("int one;", encoding="utf-8")
    (tmp_path / "cuda_utils.so").write_bytes(b"compiled")
    return tmp_path


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The programs in `folder` and those that the script itself needs are all there are."""
    for program in ("cmp", "cp", "dirname", "sh"):
        (folder / program).symlink_to(shutil.which(program) or "")
    return subprocess.run(
        [str(folder / "cc"), *arguments],
        cwd=folder,
        env={"PATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def test_the_driver_of_triton_is_handed_out(folder: Path) -> None:
    """Called with the words that Triton 3.7.1 puts together in triton/runtime/build.py."""
    (folder / "main.c").write_text("int one;", encoding="utf-8")
    words = [
        "main.c",
        "-O3",
        "-shared",
        "-fPIC",
        "-Wno-psabi",
        "-o",
        "out.so",
        "-l:libcuda.so.1",
        "-L/x",
        "-I/y",
    ]
    assert run(folder, *words).returncode == 0
    assert (folder / "out.so").read_bytes() == b"compiled"


def test_other_sources_are_refused_where_there_is_no_compiler(folder: Path) -> None:
    (folder / "main.c").write_text("int two;", encoding="utf-8")
    done = run(folder, "main.c", "-o", "out.so")
    assert done.returncode == 1
    assert "no C compiler, only Triton's driver.c, compiled; got main.c. Build it from" in done.stderr
    assert not (folder / "out.so").exists()


def test_other_sources_go_to_the_compiler_of_the_base_image(folder: Path) -> None:
    (folder / "main.c").write_text("int two;", encoding="utf-8")
    (folder / "gcc").write_text('#!/bin/sh\necho "gcc got $*"\n', encoding="utf-8")
    (folder / "gcc").chmod(0o755)
    done = run(folder, "main.c", "-o", "out.so")
    assert (done.returncode, done.stdout) == (0, "gcc got main.c -o out.so\n")


def test_a_call_without_an_output_is_refused(folder: Path) -> None:
    done = run(folder, "driver.c")
    assert done.returncode == 1
    assert "no output was named with -o" in done.stderr
