"""A stream in parts that fit in memory."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def in_batches_of(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Consecutive items, `size` of them in each batch but the last."""
    return in_batches(items, max_items=size, max_chars=1, count_chars=lambda _: 0)


def in_batches(
    items: Iterable[T], *, max_items: int, max_chars: int, count_chars: Callable[[T], int]
) -> Iterator[list[T]]:
    """Consecutive items, each batch ended by the limit that it reaches first."""
    batch: list[T] = []
    num_chars = 0
    for item in items:
        batch.append(item)
        num_chars += count_chars(item)
        if len(batch) >= max_items or num_chars >= max_chars:
            yield batch
            batch, num_chars = [], 0
    if batch:
        yield batch
