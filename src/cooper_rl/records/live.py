"""`checkpoint.live.jsonl`: the steps of a run while it goes on, a line as soon as a step is done.

    {"arm": null, "last_step": 200, ...}     the header
    {"step": 1, "rollout/reward": .41, ...}  a flat row as in metrics.jsonl

It lies beside the checkpoint folder and is for watching alone. A continued run drops the steps after its
checkpoint, which it trains again. A disk that refuses a line is warned of once, and training goes on.
"""

import json
import logging
import os
from collections.abc import Iterator
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from cooper_rl.machine.lines import LineFile
from cooper_rl.records.step_metrics import read_step
from cooper_rl.schema.data import Record
from cooper_rl.schema.step_metrics import StepMetrics

SUFFIX = ".live.jsonl"
logger = logging.getLogger(__name__)


class LiveHeader(Record):
    """The header that a reader of the rows needs."""

    arm: str | None
    """`storage.arm`; None: the run itself."""
    last_step: int
    """The last step of the iteration."""
    settings: dict[str, str]
    """Settings as a page shows them, without secrets."""
    command: str | None = None
    """The command that started the run, where it is known."""


class LiveRun(NamedTuple):
    """The contents of a live file by now."""

    path: Path
    header: LiveHeader
    metrics: list[StepMetrics]
    """Rows by step, each once."""
    updated: float
    """Seconds since 1970."""


class LiveFile:
    """Appends the steps of one iteration.

    Args:
        checkpoint: The checkpoint folder beside which it lies.
        header: Of the run.
        step: That the run continues from; later steps of an earlier process are dropped.
    """

    def __init__(self, checkpoint: Path, header: LiveHeader, *, step: int) -> None:
        self._place = live_path(checkpoint)
        self._lines: LineFile | None = None
        try:
            kept = [row for row in _rows(self._place) if row.step <= step]
            self._lines = LineFile(self._place)
            rows = [json.dumps(row.flat()) for row in kept]
            self._lines.replace(line.encode() for line in (header.model_dump_json(), *rows))
        except OSError as error:
            self._give_up(error)

    def append(self, row: StepMetrics) -> None:
        """Add the numbers of a step."""
        if self._lines is None:
            return
        try:
            self._lines.append(json.dumps(row.flat()).encode())
        except OSError as error:
            self._give_up(error)

    def close(self) -> None:
        if self._lines is not None:
            self._lines.close()

    def _give_up(self, error: OSError) -> None:
        self.close()
        self._lines = None
        logger.warning(
            "%s: cannot be written, so this run cannot be watched; training goes on: %s", self._place, error
        )


def live_path(checkpoint: Path) -> Path:
    """The path of the checkpoint folder's live file."""
    return checkpoint.with_name(checkpoint.name + SUFFIX)


def find_live(folder: Path) -> list[LiveRun]:
    """All runs below a folder by path; a file whose header is not whole yet is left out."""
    found: list[LiveRun] = []
    for path in files_named(folder, f"*{SUFFIX}"):
        if not path.is_file():  # a pipe, for whose writer this would wait
            continue
        try:
            with path.open(encoding="utf-8", errors="replace") as lines:
                header = LiveHeader.model_validate_json(lines.readline())
            rows = {row.step: row for row in _rows(path)}
            updated = path.stat().st_mtime
        except (OSError, ValueError):
            continue
        found.append(LiveRun(path, header, [rows[step] for step in sorted(rows)], updated))
    return found


def files_named(folder: Path, *patterns: str) -> list[Path]:
    """Files whose names match a pattern, by path. A folder that a run removes meanwhile is passed over."""
    # Path.rglob raises for such a folder until Python 3.13.
    return sorted(
        Path(place, name)
        for place, _, names in os.walk(folder)
        for name in names
        if any(fnmatchcase(name, pattern) for pattern in patterns)
    )


def _rows(path: Path) -> Iterator[StepMetrics]:
    """The rows, without the header, a line that is still being written, and lines of another version."""
    if not path.is_file():
        return
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines()[1:]:
        with suppress(ValueError):
            yield read_step(line)
