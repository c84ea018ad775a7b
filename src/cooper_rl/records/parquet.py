"""Parquet files, read and written a few rows at a time, whatever the size of their row groups."""

import json
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from cooper_rl.errors import DataError
from cooper_rl.machine.scratch import scratch_folder
from cooper_rl.records.batches import in_batches

MAGIC = b"PAR1"
"""The first bytes of a file."""
MAX_ROWS = 2_000_000
MAX_BYTES = 4_000_000_000
"""Unpacked size of a file's values, for readers that hold all rows in memory at a time."""
READ_ROWS = 256
READ_BUFFER_BYTES = 1 << 20
"""Size of a column's read, in place of its whole part of a row group."""
GROUP_ROWS = 10_000
GROUP_CHARS = 16_000_000
"""Size of a row group that is written; the first limit that is reached ends it."""


def read_parquet(path: Path, *, is_limited: bool) -> Iterator[Any]:
    """Yield every row as a dict.

    Raises:
        DataError: the file is not Parquet, has two columns with one name or, where it is limited, holds too
            much.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    num_bytes = 0
    try:
        with pq.ParquetFile(path, buffer_size=READ_BUFFER_BYTES, pre_buffer=False) as file:
            if is_limited:
                _check_size(path, num_rows=file.metadata.num_rows)
            _check_columns(path, file.schema_arrow.names)
            narrow = _narrow(pa.struct(list(file.schema_arrow)))
            # In batches, since a few bytes of the file may unfold into any number in memory.
            for batch in file.iter_batches(batch_size=READ_ROWS, use_threads=False):
                num_bytes += batch.nbytes
                if is_limited:
                    _check_size(path, num_bytes=num_bytes)
                yield from batch.to_pylist() if narrow is None else map(narrow, batch.to_pylist())
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        raise DataError(f"{path}: not a readable Parquet file ({error}); write it again") from error


def _check_columns(path: Path, names: Sequence[str]) -> None:
    """Refuse columns with one name: a row that is a dict keeps the last of them."""
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise DataError(f"{path}: has more than one column {', '.join(map(repr, twice))}; rename all but one")


def _narrow(kind: Any) -> Callable[[Any], Any] | None:
    """A function that gives the numbers of 32 or 16 bits in a value of a type as they were written.

    As a number of 64 bits, .1 of 32 bits is .10000000149011612. None: the type holds no such number.
    """
    import numpy
    import pyarrow as pa

    if pa.types.is_float32(kind) or pa.types.is_float16(kind):
        number = numpy.float32 if pa.types.is_float32(kind) else numpy.float16
        return lambda value: None if value is None else float(str(number(value)))
    if pa.types.is_struct(kind):
        fields = {field.name: change for field in kind if (change := _narrow(field.type)) is not None}
        return _narrow_fields(fields) if fields else None
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        change = _narrow(kind.value_type)
        return None if change is None else _narrow_items(change)
    return None


def _narrow_fields(changes: dict[str, Callable[[Any], Any]]) -> Callable[[Any], Any]:
    return lambda row: row and row | {name: change(row[name]) for name, change in changes.items()}


def _narrow_items(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda items: items and [change(item) for item in items]


def _check_size(path: Path, *, num_rows: int = 0, num_bytes: int = 0) -> None:
    if num_rows > MAX_ROWS or num_bytes > MAX_BYTES:
        found = f"{num_rows:,} rows" if num_rows else f"over {MAX_BYTES / 1e9:g} GB of values"
        raise DataError(
            f"{path}: holds {found}; a Parquet file may hold {MAX_ROWS:,} rows and "
            f"{MAX_BYTES / 1e9:g} GB of values: keep the part that you need, or write several files"
        )


@contextmanager
def parquet_lines(path: Path) -> Generator[IO[str]]:
    """A file of JSON lines that becomes a Parquet file when the block ends without an error.

    The type of a column that is null at first is known with the last line only.
    """
    with scratch_folder() as folder, (folder / "rows").open("w+", encoding="utf-8") as lines:
        yield lines
        _convert(lines, path)


def _convert(lines: IO[str], path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([])
    for rows in _row_groups(lines):
        found = pa.Table.from_pylist(rows).schema
        schema = pa.unify_schemas([schema, found], promote_options="permissive")
    with pq.ParquetWriter(path, schema) as writer:
        for rows in _row_groups(lines):
            writer.write_table(pa.Table.from_pylist(rows, schema=schema))


def _row_groups(lines: IO[str]) -> Iterator[list[Any]]:
    lines.seek(0)
    for batch in in_batches(lines, max_items=GROUP_ROWS, max_chars=GROUP_CHARS, count_chars=len):
        yield [json.loads(line) for line in batch]
