"""The state of a reward that learns, with which it goes on exactly where it was: written and read back.

    verify_rm/                      plain Hugging Face folder
    verify_rm_optimizer.safetensors
    logs/                           metrics and pairs of the steps since the checkpoint before; in the draft
                                    alone, the store keeps them beside the checkpoints
    metrics.jsonl  pairs.jsonl      every step since the first; where it is saved to another folder
    pending.jsonl                   pairs that the next step learns from, where pairs may be a step late
    anchors.jsonl                   completions of the starting policy, for the monitor

Files are written through the checkpoint store: hashes, a manifest, and LATEST last, so that a killed process
leaves the checkpoint before.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors.torch import load_file, save_file

from cooper_rl.checkpoints.identity import RunIdentity
from cooper_rl.checkpoints.logs import LOGS, METRICS, PAIRS, ROLLOUTS, write_piece
from cooper_rl.checkpoints.state import PENDING
from cooper_rl.checkpoints.store import CheckpointStore
from cooper_rl.checkpoints.versions import VERIFY_RM, numeric_versions
from cooper_rl.config.infrastructure import StorageConfig
from cooper_rl.machine.scratch import scratch_folder
from cooper_rl.models.verify_rm import VerifyItem, VerifyRM, load_verify_rm, save_verify_rm
from cooper_rl.records.files import write_records
from cooper_rl.records.step_metrics import read_metrics, write_metrics
from cooper_rl.schema.data import Pairing, PreferencePair
from cooper_rl.schema.step_metrics import StepMetrics
from cooper_rl.storage.open import open_store

ANCHORS = "anchors.jsonl"
OPTIMIZER = "verify_rm_optimizer.safetensors"
NEVER = 2**62
"""A last step that no run reaches: all files are fetched."""


class Logged(NamedTuple):
    """The numbers of rows that the log of a place holds."""

    num_metrics: int = 0
    num_pairs: int = 0


@dataclass(frozen=True)
class RewardState:
    """Everything that the next step depends on."""

    step: int
    """Steps done."""
    verify_rm: VerifyRM
    optimizer: Mapping[str, torch.Tensor]
    """See `distributed.trainable.Trainable.state`."""
    metrics: Sequence[StepMetrics]
    """Of every step since the first, as the pairs."""
    pairs: Sequence[PreferencePair]
    pending: Sequence[Pairing]
    anchors: Sequence[VerifyItem]
    logged: Logged | None = None
    """Of these rows; None: the checkpoint is to hold all rows itself."""
    versions: Mapping[str, str] = field(default_factory=dict[str, str])
    """See `numeric_versions`: of the process that wrote it."""


def open_states(folder: Path, identity: Mapping[str, str]) -> CheckpointStore:
    """The checkpoints in a folder; one object for as long as this process writes them."""
    config = StorageConfig()
    return CheckpointStore(open_store(config, folder), identity=RunIdentity(identity), retention=config)


def write_state(state: RewardState, store: CheckpointStore) -> None:
    """Publish a checkpoint; the one before is kept too.

    Raises:
        DataError, StorageError: it cannot be written; the checkpoint before stands.
        WriteConflictError: another process wrote there since this store was last read or written.
    """
    with scratch_folder() as draft:
        save_verify_rm(state.verify_rm, draft / "verify_rm")
        save_file(dict(state.optimizer), draft / OPTIMIZER)
        if state.logged is None:
            write_metrics(draft / METRICS, state.metrics)
            write_records(draft / PAIRS, state.pairs)
        else:
            _write_piece(draft / LOGS, state, state.logged)
        write_records(draft / PENDING, state.pending)
        rows = (json.dumps(item._asdict(), ensure_ascii=False) + "\n" for item in state.anchors)
        (draft / ANCHORS).write_text("".join(rows), encoding="utf-8")
        store.publish(draft, step=state.step, score=None, versions=versions_here(state.verify_rm))


def versions_here(verify_rm: VerifyRM) -> dict[str, str]:
    """The versions that this process writes into a state: everything that a reward's numbers depend on."""
    return numeric_versions(verify_rm.device, {VERIFY_RM: verify_rm.compute})


def _write_piece(folder: Path, state: RewardState, logged: Logged) -> None:
    """The rows that the log does not hold yet."""
    rows = {
        METRICS: (row.flat() for row in state.metrics[logged.num_metrics :]),
        PAIRS: (pair.model_dump(mode="json") for pair in state.pairs[logged.num_pairs :]),
        ROLLOUTS: (),
    }
    write_piece(folder, rows, earlier={})


def read_state(store: CheckpointStore, *, device: torch.device) -> RewardState | None:
    """The newest whole checkpoint; None: there is none.

    Raises:
        ConfigError: it belongs to a run of another configuration; names the keys.
        DataError: there is a LATEST, but no whole checkpoint.
        ModelError: the weights cannot be used.
    """
    with scratch_folder() as work:
        found = store.newest(work, last_step=NEVER, logs=(METRICS, PAIRS))
        if found is None:
            return None
        place = found.folder
        metrics = read_metrics(*found.log[METRICS])
        pairs = [
            PreferencePair.model_validate_json(line) for path in found.log[PAIRS] for line in _lines(path)
        ]
        # A checkpoint of an earlier version holds its rows itself: the log begins with them.
        logged = Logged(len(metrics), len(pairs)) if found.manifest.log is not None else Logged()
        return RewardState(
            step=found.manifest.step,
            verify_rm=load_verify_rm(place / "verify_rm", device=device),
            optimizer=load_file(place / OPTIMIZER),
            metrics=metrics,
            pairs=pairs,
            pending=[Pairing.model_validate_json(line) for line in _lines(place / PENDING)],
            anchors=[VerifyItem(**json.loads(line)) for line in _lines(place / ANCHORS)],
            logged=logged,
            versions=found.manifest.versions,
        )


def _lines(path: Path) -> list[str]:
    # Texts hold other characters that end lines than \n alone.
    return path.read_text(encoding="utf-8").split("\n")[:-1]
