"""Processes that own a file or folder until they are ended."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def start_owner(code: str, *arguments: str, **environment: str) -> tuple[subprocess.Popen[str], Path]:
    """Run a program whose first line names a path, and then nothing; returns the path too."""
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


@contextmanager
def ending(*processes: subprocess.Popen[str]) -> Iterator[None]:
    """Kill them when the block ends."""
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()
