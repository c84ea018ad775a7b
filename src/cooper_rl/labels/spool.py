"""More records than memory holds: written once to a file, and read from there in order or one by one."""

import os
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar, overload

from cooper_rl.errors import DataError
from cooper_rl.schema.data import Record

R = TypeVar("R", bound=Record)


class Spool(Sequence[R]):
    """A sequence of records in a file; memory holds eight bytes for each.

    A context manager: records are appended inside its block, and can be read at any time.
    """

    def __init__(self, path: Path, kind: type[R]) -> None:
        self._path = path
        self._kind = kind
        self._file = path.open("w+b")
        self._starts = array("Q", [0])
        """Places of the records' first bytes, and the place of the next record."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):  # of rows that nobody will read, or whose error is under way
            self._file.close()

    def __len__(self) -> int:
        return len(self._starts) - 1

    def append(self, record: R) -> None:
        """Write a record.

        Raises:
            DataError: the disk refuses it.
        """
        line = record.model_dump_json().encode() + b"\n"
        try:
            self._file.write(line)
        except OSError as error:
            raise self._explain(error) from error
        self._starts.append(self._starts[-1] + len(line))

    def extend(self, records: Iterable[R]) -> None:
        """Write records, as `append` does."""
        for record in records:
            self.append(record)

    def __iter__(self) -> Iterator[R]:
        try:
            self._file.flush()
            with self._path.open("rb") as lines:
                for line in lines:
                    yield self._kind.model_validate_json(line)
        except OSError as error:
            raise self._explain(error) from error

    @overload
    def __getitem__(self, index: int) -> R: ...

    @overload
    def __getitem__(self, index: slice) -> list[R]: ...

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[each] for each in range(len(self))[index]]
        place = range(len(self))[index]
        start, end = self._starts[place : place + 2]
        try:
            self._file.flush()
            line = os.pread(self._file.fileno(), end - start, start)
        except OSError as error:
            raise self._explain(error) from error
        return self._kind.model_validate_json(line)

    def _explain(self, error: OSError) -> DataError:
        return DataError(
            f"{self._path}: rows cannot be kept on disk ({error}); free space, or set TMPDIR to a larger "
            "place"
        )
