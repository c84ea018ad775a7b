"""The journal of a run: every answer, and the completions that no checkpoint has learned from yet.

A request counts from the moment its line is on the disk, which is before its answer is sent. With the newest
checkpoint the journal is all that a killed server needs: it takes the steps that the checkpoint lacks again,
from the same completions in the same order. One line a request, JSON; a torn last line was never answered.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from cooper_rl.api.rows import Row
from cooper_rl.errors import DataError
from cooper_rl.machine.lines import LineFile

NAME = "journal.jsonl"


@dataclass(frozen=True)
class Entry:
    """One answered request."""

    id: str | None
    """The request's; None: the protocol has none, so that it cannot be repeated."""
    digest: str
    """Of the request's content."""
    rewards: tuple[float, ...]
    verify_rm_step: int
    """Steps that VerifyRM had learned from when it scored."""
    staleness: int
    """Earlier steps that it had not."""
    step: int | None
    """The step that learns from the completions; None: they are only scored."""
    ends_step: bool
    """Whether they are the last ones of that step."""
    rows: tuple[Row, ...]
    """Empty when a checkpoint has learned from them, or none ever will."""


class Journal:
    """Not safe from threads but for `find`.

    Args:
        folder: Of the run; must exist.
        kept_rewards: Of answered requests, the newest ones; older answers are forgotten by `compact`.
    """

    def __init__(self, folder: Path, *, kept_rewards: int) -> None:
        """Read what is there, and cut off a torn last line.

        Raises:
            DataError: the file cannot be read, or a line before the last one is damaged.
        """
        self._path = folder / NAME
        self._kept_rewards = kept_rewards
        self._num_idle = 0
        self._answers: dict[str, Entry] = {}
        try:
            self._file = LineFile(self._path, is_durable=True)
            self.unlearned = self._read()
            """Entries with rows when the journal was opened, in order."""
        except OSError as error:
            raise DataError(
                f"{self._path}: cannot be used ({error}); mend the folder's disk or rights"
            ) from error

    @property
    def is_long(self) -> bool:
        """True if it holds twice as many answers as are to be kept, of completions that no step waits for."""
        return self._num_idle > 2 * self._kept_rewards

    def find(self, request_id: str) -> Entry | None:
        """The answer to a request, without its rows."""
        return self._answers.get(request_id)

    def append(self, entries: Sequence[Entry]) -> None:
        """Write entries; they are on the disk when this returns, all of them or none.

        Raises:
            DataError: they could not be written.
        """
        try:
            self._file.append(*(_line(entry) for entry in entries))
        except OSError as error:
            raise self._refused(error) from error
        for entry in entries:
            _remember(self._answers, entry)
            self._num_idle += _num_idle(entry)

    def compact(self, step: int) -> None:
        """Drop the rows of all steps up to this one, of which there is a checkpoint, and the oldest answers.

        Raises:
            DataError: the file cannot be written again; it stays as it was.
        """
        try:
            self._file.replace(_line(entry) for entry in self._kept(step))
            self._read()
        except OSError as error:
            raise self._refused(error) from error

    def close(self) -> None:
        self._file.close()

    def _kept(self, step: int) -> Iterator[Entry]:
        num_rewards = sum(len(entry.rewards) for entry in self._answers.values())
        for entry in self._entries():
            is_learned = entry.step is None or entry.step <= step
            # Entries are in the order of their answers: the oldest go until the rest fits.
            if is_learned and entry.id is not None and num_rewards > self._kept_rewards:
                num_rewards -= len(entry.rewards)
            elif is_learned and entry.id is not None:
                yield _without_rows(entry)
            elif not is_learned:
                yield entry

    def _read(self) -> list[Entry]:
        answers: dict[str, Entry] = {}
        unlearned: list[Entry] = []
        self._num_idle = 0
        for entry in self._entries():
            _remember(answers, entry)
            self._num_idle += _num_idle(entry)
            if entry.rows:
                unlearned.append(entry)
        # Replaced at once: a `find` from another thread meanwhile would miss what is not read yet, and its
        # request would be scored and learned a second time.
        self._answers = answers
        return unlearned

    def _entries(self) -> Iterator[Entry]:
        for number, line in enumerate(self._file, start=1):
            try:
                values: dict[str, Any] = json.loads(line)
                values["rows"] = tuple(Row(*row) for row in values["rows"])
                values["rewards"] = tuple(values["rewards"])
                yield Entry(**values)
            except (ValueError, TypeError, KeyError, RecursionError) as error:
                raise DataError(
                    f"{self._path}:{number}: not a line of the journal ({error}); restore the run's folder "
                    "from a copy, or begin a run with another name"
                ) from error

    def _refused(self, error: OSError) -> DataError:
        return DataError(f"{self._path}: cannot be written ({error}); free space on its disk")


def _remember(answers: dict[str, Entry], entry: Entry) -> None:
    if entry.id is not None:
        answers[entry.id] = _without_rows(entry)


def _num_idle(entry: Entry) -> int:
    """Rewards of completions that no step waits for."""
    return 0 if entry.rows else len(entry.rewards)


def _line(entry: Entry) -> bytes:
    return json.dumps(asdict(entry) | {"rows": entry.rows}, ensure_ascii=False).encode()


def _without_rows(entry: Entry) -> Entry:
    return replace(entry, rows=())
