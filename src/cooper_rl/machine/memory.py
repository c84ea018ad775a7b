"""Out of memory, on a GPU or in this process, as an error that says what to lower."""

from collections.abc import Generator
from contextlib import contextmanager

from cooper_rl.errors import TrainingError


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
    """Whether torch, CUDA or Python says that there is no memory left."""
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
