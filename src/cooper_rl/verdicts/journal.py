"""Verdicts kept as they come, so that an interrupted labelling run goes on where it was (row 3).

An append-only JSONL file beside the labels. A verdict is found again by what it depends on, not by its row:
the texts, and the identity of who gave it (a judge's settings and prompt; the rule's policy and the versions
of this package and of math-verify). Deliberately left out: what the verdicts lead to.
"""

import hashlib
import json
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Literal, NamedTuple, Self, get_args

from cooper_rl.errors import DataError
from cooper_rl.machine.lines import LineFile
from cooper_rl.schema.data import Verdict


class KeptVerdict(NamedTuple):
    """A verdict of an earlier run, or of earlier in this one."""

    verdict: Verdict
    reason: str
    failure: Literal["refused", "unreachable"] | None = None
    """Nobody gave it: the request failed. Never kept."""


class Journal:
    """Reads what is there, appends what comes; a half-written last line is a verdict that never came."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._kept: dict[str, KeptVerdict] = {}
        self._file: LineFile | None = None

    def __enter__(self) -> Self:
        try:
            self._file = LineFile(self._path, is_exclusive=True)
            self._read(self._file)
        except OSError as error:
            raise DataError(
                f"{self._path}: the journal of verdicts cannot be opened ({error}); free the path or choose "
                "another place for the labels"
            ) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            with suppress(OSError):  # of what could not be written, which was said then
                self._file.close()

    def _read(self, lines: LineFile) -> None:
        for line in lines:
            try:
                key, verdict, reason = json.loads(line)
            except (TypeError, ValueError):
                continue
            if isinstance(key, str) and isinstance(reason, str) and verdict in get_args(Verdict):
                self._kept[key] = KeptVerdict(verdict, reason)

    def recall(self, key: str) -> KeptVerdict | None:
        """The verdict kept under a key, if there is one."""
        return self._kept.get(key)

    def keep(self, key: str, verdict: Verdict, reason: str) -> None:
        """Keep a verdict; it is in the operating system's hands when this returns."""
        self._kept[key] = KeptVerdict(verdict, reason)
        if self._file is None:
            raise RuntimeError(
                f"{self._path}: the journal is not open; keep verdicts inside its `with` block"
            )
        try:
            self._file.append(json.dumps([key, verdict, reason], ensure_ascii=False).encode())
        except OSError as error:
            raise DataError(
                f"{self._path}: a verdict cannot be written ({error}); free space and start again: those "
                "before it are kept"
            ) from error


def verdict_key(voter: str, *texts: str) -> str:
    """What a verdict is found again by: who gave it, and every text that it was given on."""
    digest = hashlib.blake2b(digest_size=16)
    for text in (voter, *texts):
        encoded = text.encode()
        digest.update(len(encoded).to_bytes(8, "big") + encoded)
    return digest.hexdigest()
