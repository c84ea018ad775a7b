"""A run that saves checkpoints, as the tests of this folder begin."""

from pathlib import Path

import torch

from cooper_rl.checkpoints.identity import RunIdentity
from cooper_rl.checkpoints.reading import Found
from cooper_rl.checkpoints.state import (
    TrainingState,
)
from cooper_rl.checkpoints.store import CheckpointStore
from cooper_rl.checkpoints.writer import CheckpointWriter
from cooper_rl.config.infrastructure import StorageConfig
from cooper_rl.schema.data import PreferencePair
from cooper_rl.storage.base import ObjectStore

CPU = torch.device("cpu")
PAIR = PreferencePair(
    step=1, problem_id="p", question="q", reference_answer="1", source="t",
    positive="a\u2028b\u2029c\x85d\x0be\r\nf", negative="2",
)  # fmt: skip
"""With everything that Python takes for the end of a line."""
IDENTITY = {"seed": "0", "cooper.group_size": "8", "data.problems": "abc"}


def checkpoints(
    store: ObjectStore, *, identity: dict[str, str] = IDENTITY, **kept: object
) -> CheckpointStore:
    """As a starting process opens it."""
    return CheckpointStore(
        store, identity=RunIdentity(identity), retention=StorageConfig.model_validate(kept)
    )


def save(opened: CheckpointStore, state: TrainingState, work: Path, *steps: int, score: float = 0) -> None:
    with CheckpointWriter(opened, work) as writer:
        for step in steps:
            state.step = step
            writer.save(state, score=score)


def newest(store: ObjectStore, folder: Path, *, last_step: int = 1000) -> Found | None:
    return checkpoints(store).newest(folder, last_step=last_step)


def pieces(store: ObjectStore) -> list[str]:
    """Of the log, in order."""
    return sorted({key.rpartition("/")[0] for key in store.keys("logs/")})


def overwrite(store: ObjectStore, key: str, data: bytes) -> None:
    """What somebody else does to an object."""
    store.delete([key])
    store.write(key, data, replaces=None)
