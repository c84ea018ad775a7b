"""What stands for a C compiler in the image for GPUs hands out one file, and refuses every other."""

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
    return subprocess.run(
        [str(folder / "cc"), *arguments], cwd=folder, capture_output=True, text=True, timeout=30, check=False
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


def test_other_sources_are_refused(folder: Path) -> None:
    (folder / "main.c").write_text("int two;", encoding="utf-8")
    done = run(folder, "main.c", "-o", "out.so")
    assert done.returncode == 1
    assert (
        "this image has no C compiler; it can only hand out Triton's driver.c, and got main.c" in done.stderr
    )
    assert not (folder / "out.so").exists()


def test_a_call_without_an_output_is_refused(folder: Path) -> None:
    done = run(folder, "driver.c")
    assert done.returncode == 1
    assert "no output was named with -o" in done.stderr
