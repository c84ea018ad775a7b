"""A disk that fills up: the system refuses to let any file of this process grow beyond a size."""

import resource
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def no_file_beyond(num_bytes: int) -> Generator[None]:
    """A write beyond the size fails half-way, as on a full disk (Python ignores the signal that it sends)."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
