"""Verdicts kept as they come, so that an interrupted labelling run goes on where it was (row 3).

An append-only JSONL file beside the labels. A verdict is found again by what it depends on, not by its row:
the texts, and the identity of who gave it (a judge's settings and prompt; the rule's policy and the versions
of this package and of math-verify). A temporary index finds it on disk, so that any number can be kept. A
mirror keeps the lines where they outlive this machine.
What the verdicts lead to is in `verdicts/hybrid.py`.
"""

import hashlib
import json
import sqlite3
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Literal, NamedTuple, Protocol, Self, get_args

from cooper_rl.errors import DataError
from cooper_rl.machine.index import temporary_index
from cooper_rl.machine.lines import LineFile
from cooper_rl.schema.data import Verdict
from cooper_rl.schema.texts import has_surrogates, replace_surrogates

MAX_RECENT = 8192
"""Verdicts in memory, which go to the index together: sorted, since it is ordered by key."""


class KeptVerdict(NamedTuple):
    """A verdict of an earlier run, or of earlier in this one."""

    verdict: Verdict
    reason: str
    failure: Literal["refused", "unreachable"] | None = None
    """Nobody gave it: the request failed. Never kept."""
    is_new: bool = False
    """Of this run."""


class Mirror(Protocol):
    """A second place for the lines of a journal (`labels/kept.py`)."""

    def lines(self) -> Iterable[bytes]:
        """All lines there, those of other journals included."""
        ...

    def add(self, line: bytes) -> None:
        """Keep a line there too."""
        ...


class Journal:
    """Reads what is there, appends what comes; a half-written last line is a verdict that never came."""

    def __init__(self, path: Path, mirror: Mirror | None = None) -> None:
        """`mirror`: read at the start too, and given every verdict that is kept."""
        self._path = path
        self._mirror = mirror
        self._open = ExitStack()
        self._file: LineFile | None = None
        self._index: sqlite3.Connection | None = None
        self._recent: dict[str, KeptVerdict] = {}

    def __enter__(self) -> Self:
        try:
            with ExitStack() as stack:
                index = stack.enter_context(temporary_index())
                index.execute(
                    "CREATE TABLE kept (key TEXT PRIMARY KEY, verdict, reason, is_new) WITHOUT ROWID"
                )
                _check_ours(self._path)
                file = LineFile(self._path, is_exclusive=True)
                stack.callback(_close, file)
                self._index, self._file = index, file
                self._read(self._mirror.lines() if self._mirror else [])
                # After the mirror: where both hold a key, the own file's verdict counts.
                self._read(file)
                self._open = stack.pop_all()
        except OSError as error:
            raise DataError(
                f"{self._path}: the journal of verdicts cannot be opened ({error}); free the path or choose "
                "another place for the labels"
            ) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.__exit__(kind, error, trace)

    def _read(self, lines: Iterable[bytes]) -> None:
        for line in lines:
            try:
                key, verdict, reason = json.loads(line)
            except (TypeError, ValueError, RecursionError):
                continue
            if not (isinstance(key, str) and isinstance(reason, str)):
                continue
            # Half a surrogate pair, which JSON can spell and the index cannot hold.
            if verdict in get_args(Verdict) and not has_surrogates(key + reason):
                self._remember(key, KeptVerdict(verdict, reason))

    def recall(self, key: str) -> KeptVerdict | None:
        """The verdict kept under a key, if there is one."""
        recent = self._recent.get(key)
        if recent is not None or self._index is None:
            return recent
        found = self._index.execute("SELECT verdict, reason, is_new FROM kept WHERE key = ?", [key])
        verdict = found.fetchone()
        return verdict and KeptVerdict(verdict[0], verdict[1], is_new=bool(verdict[2]))

    def keep(self, key: str, verdict: Verdict, reason: str) -> None:
        """Keep a verdict; it is in the operating system's hands when this returns."""
        if self._file is None:
            raise RuntimeError(
                f"{self._path}: the journal is not open; keep verdicts inside its `with` block"
            )
        reason = replace_surrogates(reason)  # a judge of somebody else may give half of a pair
        line = json.dumps([key, verdict, reason], ensure_ascii=False).encode()
        try:
            self._file.append(line)
        except OSError as error:
            raise DataError(
                f"{self._path}: a verdict cannot be written ({error}); free space and start again: those "
                "before it are kept"
            ) from error
        if self._mirror is not None:
            self._mirror.add(line)
        self._remember(key, KeptVerdict(verdict, reason, is_new=True))

    def _remember(self, key: str, kept: KeptVerdict) -> None:
        self._recent[key] = kept
        if len(self._recent) >= MAX_RECENT and self._index is not None:
            rows = (
                (key, kept.verdict, kept.reason, kept.is_new) for key, kept in sorted(self._recent.items())
            )
            self._index.executemany("INSERT OR REPLACE INTO kept VALUES (?, ?, ?, ?)", rows)
            self._recent.clear()


def _check_ours(path: Path) -> None:
    """Before a last line without its end is cut off: nobody named this file."""
    if path.is_file():
        with path.open("rb") as lines:
            first = next(lines, b"")
            # The first line may be damaged, or hold no more than its beginning.
            if first and not any(line.startswith(b'["'[: len(line)]) for line in chain([first], lines)):
                raise DataError(
                    f"{path}: is no journal of verdicts; move it, or choose another place for the labels"
                )


def _close(file: LineFile) -> None:
    with suppress(OSError):  # of what could not be written, which was said then
        file.close()


def verdict_key(voter: str, *texts: str) -> str:
    """The key by which a verdict is found again: its author, and every text that it was given on."""
    digest = hashlib.blake2b(digest_size=16)
    for text in (voter, *texts):
        encoded = text.encode()
        # With their lengths: two texts that are split elsewhere are other texts.
        digest.update(len(encoded).to_bytes(8, "big") + encoded)
    return digest.hexdigest()
