"""Records that are written once and read in the same order, from a file and not from memory."""

from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Generic, Self, TypeVar

from cooper_rl.errors import DataError
from cooper_rl.schema.data import Record

R = TypeVar("R", bound=Record)


class Spool(Generic[R]):
    """A context manager: records are appended inside its block, and can be read at any time."""

    def __init__(self, path: Path, kind: type[R]) -> None:
        self._path = path
        self._kind = kind
        self._lines = path.open("w", encoding="utf-8")
        self._num_records = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lines.close()

    def __len__(self) -> int:
        return self._num_records

    def append(self, record: R) -> None:
        """Write a record.

        Raises:
            DataError: the disk refuses it.
        """
        try:
            self._lines.write(record.model_dump_json() + "\n")
        except OSError as error:
            raise self._explain(error) from error
        self._num_records += 1

    def __iter__(self) -> Iterator[R]:
        try:
            self._lines.flush()
            with self._path.open("rb") as lines:
                for line in lines:
                    yield self._kind.model_validate_json(line)
        except OSError as error:
            raise self._explain(error) from error

    def _explain(self, error: OSError) -> DataError:
        return DataError(
            f"{self._path}: rows cannot be kept on disk ({error}); free space, or set TMPDIR to a larger "
            "place"
        )
