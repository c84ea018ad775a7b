"""The memory that this process may use, and an error for the lack of it that says what to lower."""

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from cooper_rl.errors import TrainingError
from cooper_rl.machine.cores import CGROUP


def usable_memory(cgroup: Path = CGROUP) -> int:
    """Bytes of the machine, or of the container's limit where that is less."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for name in ("memory.max", "memory/memory.limit_in_bytes"):  # version 2, version 1
        try:
            return min(machine, int((cgroup / name).read_text()))
        except (OSError, ValueError):  # no such file, or `max`
            continue
    return machine


@contextmanager
def explains_memory(doing: str, remedy: str) -> Generator[None]:
    """Turn running out of memory into an error of ours; other errors pass.

    Raises:
        TrainingError: memory ran out; names what was done and the remedy.
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:  # torch's own error is a RuntimeError
        if not is_out_of_memory(error):
            raise
        raise TrainingError(f"{doing}: {describe(error)}; {remedy}") from error


def is_out_of_memory(error: Exception) -> bool:
    """True if torch, CUDA or Python says that there is no memory left."""
    said = str(error).lower()
    return isinstance(error, MemoryError) or any(
        # CUDA says "out of memory", the CPU allocator "can't allocate memory", cuBLAS
        # "CUBLAS_STATUS_ALLOC_FAILED". The last two are plain RuntimeErrors, so that only their words tell.
        words in said
        for words in ("out of memory", "allocate memory", "alloc_failed")
    )


def describe(error: Exception) -> str:
    """Its first line, which says how much was asked for."""
    said = str(error).strip().splitlines()
    # The rest describes torch's allocator and names remedies of torch's, which would hide ours.
    return f"out of memory ({said[0][:200]})" if said else "out of memory"
