"""Results of a search as they come, so that one that was stopped goes on where it was.

A search is deterministic but for what is recorded here: VerifyRM's scores, texts made with gradients, the
clock. A search that starts again repeats its draws, takes its results from the file in the same order, and
computes only what comes after the last one.
"""

import json
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pydantic import TypeAdapter

from cooper_rl.errors import DataError
from cooper_rl.machine.lines import LineFile

_Line = TypeAdapter(tuple[str, Any])


class Journal:
    """Results in the order in which they were asked for; an append-only JSONL file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._recorded: list[tuple[str, Any]] = []
        self._place = 0
        self._file: LineFile | None = None
        self._seconds_before = 0.0
        self._started = time.monotonic()

    def __enter__(self) -> Self:
        try:
            self._file = self._open()
        except OSError as error:
            raise DataError(
                f"{self._path}: the journal of the search cannot be opened ({error}); free the path or write "
                "the texts elsewhere"
            ) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            with suppress(OSError):  # a failed write was reported when it happened
                self._file.close()

    def _open(self) -> LineFile:
        lines = LineFile(self._path, is_exclusive=True)
        try:
            self._read(lines)
        except BaseException:
            lines.close()  # a `with` block that was not entered calls no __exit__, which would free the lock
            raise
        return lines

    def _read(self, lines: LineFile) -> None:
        for number, line in enumerate(lines, start=1):
            try:
                key, value = _Line.validate_json(line)
            except ValueError as error:
                raise DataError(
                    f"{self._path}:{number}: no result of a search; remove the file to search anew"
                ) from error
            self._recorded.append((key, value))

    @property
    def num_recorded(self) -> int:
        """Results of earlier starts."""
        return len(self._recorded)

    def result(self, key: str, compute: Callable[[], Any]) -> Any:
        """The next result: the recorded one, or computed and recorded. JSON values only.

        Args:
            key: What the result depends on; a recorded one must have the same.
            compute: Called where nothing is recorded.

        Raises:
            DataError: the recorded result is of another search, or the disk refuses the write.
        """
        if self._place < len(self._recorded):
            recorded, value = self._recorded[self._place]
            self._place += 1
            if recorded != key:
                raise DataError(
                    f"{self._path}:{self._place}: holds a result for {recorded!r} where this search asks for "
                    f"{key!r}; remove the file to search anew"
                )
            return value
        value = compute()
        if self._file is None:
            raise RuntimeError(f"{self._path}: the journal is not open; search inside its `with` block")
        try:
            self._file.append(json.dumps([key, value]).encode())
        except OSError as error:
            raise DataError(
                f"{self._path}: a result cannot be written ({error}); free space and start again: the search "
                "goes on from the results before it"
            ) from error
        return value

    def seconds(self) -> float:
        """Time spent, in earlier starts too, without the time between them."""
        is_recorded = self._place < len(self._recorded)
        found = self.result(
            "seconds", lambda: round(self._seconds_before + time.monotonic() - self._started, 6)
        )
        if is_recorded:
            # The clock goes on from the last recorded reading: the time between two starts does not count.
            self._seconds_before, self._started = found, time.monotonic()
        return found
