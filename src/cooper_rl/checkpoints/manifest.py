"""The manifest of a checkpoint, and the choice of those that are kept (row 13)."""

import hashlib
import re
from collections.abc import Sequence

from pydantic import Field

from cooper_rl.checkpoints.logs import RunLog
from cooper_rl.config.infrastructure import StorageConfig
from cooper_rl.schema.data import Record

LATEST = "LATEST"
MANIFEST = "manifest.json"
WRITER = "writer"
NAME = re.compile(r"step-(\d{6,})(-[0-9a-f]{8})?")
"""The name of a checkpoint."""


class CheckpointEntry(Record):
    """A checkpoint by name."""

    name: str
    step: int
    score: float | None
    """Higher is better; None: not measured."""


class CheckpointManifest(Record):
    """The manifest of a step folder."""

    step: int
    score: float | None
    identity: dict[str, str]
    """The source of the numbers: configuration that differs from the defaults, and hashes of the data."""
    versions: dict[str, str]
    """Versions and hardware that wrote it; see `checkpoints/versions.py`."""
    history: tuple[CheckpointEntry, ...]
    """The checkpoints that were kept when this one was written, oldest first."""
    sha256: dict[str, str]
    """Relative path -> hash of every other file in the folder."""
    defaults: dict[str, str] = Field(default_factory=dict[str, str])
    """The rest of that configuration: keys that had their defaults."""
    log: RunLog | None = None
    """The log with the rows of every step. None: the rows are in the folder itself, or nowhere."""
    checksum: str = ""
    """Hash of this record with an empty checksum."""

    def sealed(self) -> "CheckpointManifest":
        """The same with its checksum."""
        bare = self.model_copy(update={"checksum": ""})
        # 0.1.0 knew no log, and a reward's state has no defaults: what is empty was never sealed.
        empty = {name for name in ("defaults", "log") if not getattr(self, name)}
        hashed = bare.model_dump_json(exclude=empty)
        return bare.model_copy(update={"checksum": hashlib.sha256(hashed.encode()).hexdigest()})


def retained(
    entries: Sequence[CheckpointEntry], config: StorageConfig, *, back_to: Sequence[int] = ()
) -> tuple[CheckpointEntry, ...]:
    """The checkpoints that are kept: the last ones, every m-th, the best, and the newest up to each step of
    `back_to`; oldest first."""
    # After a fallback to an earlier checkpoint a step may have been published twice: the later one counts.
    last = {entry.step: entry for entry in entries}
    known = [last[step] for step in sorted(last) if step <= entries[-1].step]
    chosen = [entry.name for entry in known[-config.keep_last :]]
    if config.keep_every is not None:
        chosen += [entry.name for entry in known if entry.step % config.keep_every == 0]
    scored = [entry for entry in known if entry.score is not None]
    if config.keep_best and scored:
        # The later of two that are as good.
        chosen.append(max(scored, key=lambda entry: (entry.score, entry.step)).name)
    for step in back_to:
        chosen += [entry.name for entry in known if entry.step <= step][-1:]
    return tuple(entry for entry in known if entry.name in chosen)


def dump_manifest(manifest: CheckpointManifest) -> bytes:
    """The manifest as it is stored."""
    exclude = set[str]() if manifest.log else {"log"}  # earlier versions would refuse it
    return (manifest.model_dump_json(indent=2, exclude=exclude) + "\n").encode()
