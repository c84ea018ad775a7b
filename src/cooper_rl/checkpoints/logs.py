"""The log of a run (row 13): metrics, pairs and rollouts of every step, in pieces that are written once.

    logs/000001-000020-1a2b3c4d/     steps 1 to 20, written with the checkpoint of step 20
        metrics.jsonl  pairs.jsonl  rollouts.jsonl
        index.json                   in one piece of 32: names all pieces before it

A manifest names the last pieces and the newest index, which names earlier pieces and the index before it.
So neither a manifest nor a checkpoint grows with the steps, and every piece is verified by a hash that leads
to the manifest. A kind without rows in a piece has no file there. Versions before wrote one file of each kind
into every checkpoint.
"""

import hashlib
import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from pydantic import ValidationError

from cooper_rl.errors import DamagedObjectError, StorageError
from cooper_rl.machine.daemon_pool import DaemonPool
from cooper_rl.schema.data import Record
from cooper_rl.storage.base import ObjectStore, fetch_file

METRICS = "metrics.jsonl"
PAIRS = "pairs.jsonl"
ROLLOUTS = "rollouts.jsonl"
KINDS = (METRICS, PAIRS, ROLLOUTS)
LOGS = "logs"
"""The folder of the pieces beside the checkpoints, and of the newest one in the draft of a checkpoint."""
INDEX = "index.json"
PIECES_PER_INDEX = 32
NUM_PARALLEL = 8
"""Pieces that are fetched at a time."""


class LogPiece(Record):
    """Some consecutive steps."""

    name: str
    """Its folder in the place."""
    last_step: int
    sha256: dict[str, str]
    """Kind -> hash."""


class IndexEntry(Record):
    """A stored `RunLog`."""

    key: str
    sha256: str


class RunLog(Record):
    """The newest pieces, oldest first, and what names those before."""

    pieces: tuple[LogPiece, ...] = ()
    before: IndexEntry | None = None

    @property
    def last_step(self) -> int:
        """0 without pieces."""
        return self.pieces[-1].last_step if self.pieces else 0

    @property
    def is_full(self) -> bool:
        """True if the next piece begins a new list, and an index of this one goes with it."""
        return len(self.pieces) == PIECES_PER_INDEX

    def piece_name(self, *, step: int, writer: str) -> str:
        """The name of the piece that ends with a step; random, because a name is never used twice."""
        return f"{LOGS}/{self.last_step + 1:06d}-{step:06d}-{writer}"

    def extended(self, name: str, sha256: Mapping[str, str], *, step: int) -> "RunLog":
        """The log with one more piece, which holds these files."""
        kinds = {kind: hashed for kind, hashed in sha256.items() if kind != INDEX}
        piece = LogPiece(name=name, last_step=step, sha256=kinds)
        if INDEX not in sha256:
            return RunLog(pieces=(*self.pieces, piece), before=self.before)
        return RunLog(pieces=(piece,), before=IndexEntry(key=f"{name}/{INDEX}", sha256=sha256[INDEX]))


def write_piece(
    folder: Path, rows: Mapping[str, Iterable[object]], *, earlier: Mapping[str, Sequence[Path]]
) -> None:
    """Draft the piece of a checkpoint: rows by kind, each preceded by the contents of the earlier files."""
    folder.mkdir(parents=True, exist_ok=True)
    for kind in KINDS:
        place = folder / kind
        with place.open("wb") as lines:
            for path in earlier.get(kind, ()):
                with path.open("rb") as content:
                    shutil.copyfileobj(content, lines)
            lines.writelines((json.dumps(row, ensure_ascii=False) + "\n").encode() for row in rows[kind])
        # A kind without rows has no file: the manifest would name, and every reader fetch, an empty one.
        if not place.stat().st_size:
            place.unlink()


def write_index(folder: Path, log: RunLog) -> None:
    """Add the index to the draft of a piece, if there is to be one."""
    if log.is_full:
        (folder / INDEX).write_text(log.model_dump_json() + "\n", encoding="utf-8")


def read_pieces(store: ObjectStore, log: RunLog) -> list[LogPiece]:
    """All pieces, oldest first.

    Raises:
        DamagedObjectError: an index is missing or changed; names it.
    """
    lists = [log.pieces]
    while log.before is not None:
        log = _read_index(store, log.before)
        lists.append(log.pieces)
    return [piece for pieces in reversed(lists) for piece in pieces]


def fetch_log(store: ObjectStore, log: RunLog, kind: str, *, folder: Path) -> list[Path]:
    """The verified files with the rows of all steps, oldest first: in place, or below `folder`.

    Raises:
        DamagedObjectError: a piece or an index is missing or changed; names it.
    """
    wanted = [piece for piece in read_pieces(store, log) if kind in piece.sha256]
    for piece in wanted:
        if not piece.name.startswith(f"{LOGS}/"):
            raise StorageError(f"{store.uri}: its log names {piece.name[:200]!r}, which is no piece of a log")
    with DaemonPool(NUM_PARALLEL) as threads:
        return list(
            threads.map(
                lambda piece: fetch_file(store, f"{piece.name}/{kind}", piece.sha256[kind], folder=folder),
                wanted,
            )
        )


def _read_index(store: ObjectStore, entry: IndexEntry) -> RunLog:
    content = store.read(entry.key)
    place = f"{store.uri}/{entry.key}"
    if content is None:
        raise DamagedObjectError(f"{place}: missing since it was written; restore it from a copy")
    if hashlib.sha256(content.data).hexdigest() != entry.sha256:
        raise DamagedObjectError(f"{place}: changed since it was written; restore it from a copy")
    try:
        return RunLog.model_validate_json(content.data)
    except ValidationError as error:
        raise DamagedObjectError(f"{place}: is no index of a log; restore it from a copy") from error
