"""The state of a reward that learns, with which it goes on exactly where it was: written and read back.

    verify_rm/                      plain Hugging Face folder
    verify_rm_optimizer.safetensors
    run_state.json                  what later steps need of the past, with the newest pairs
    metrics.jsonl                   the newest steps
    pending.jsonl                   pairs that the next step learns from, where pairs may be a step late
    anchors.jsonl                   completions of the starting policy, for the monitor
    logs/                           metrics and pairs of the steps since the checkpoint before; in the draft
                                    alone, the store keeps them beside the checkpoints

Its size does not grow with the steps. Files are written through the checkpoint store: hashes, a manifest, and
LATEST last, so that a killed process leaves the checkpoint before.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from cooper_rl.checkpoints.identity import RunIdentity
from cooper_rl.checkpoints.logs import LOGS, METRICS, PAIRS, ROLLOUTS, write_piece
from cooper_rl.checkpoints.reading import read_in_place
from cooper_rl.checkpoints.run_state import RUN_STATE, RunState, replay
from cooper_rl.checkpoints.state import PENDING
from cooper_rl.checkpoints.store import CheckpointStore
from cooper_rl.checkpoints.versions import VERIFY_RM, numeric_versions
from cooper_rl.config.cooper import MonitorConfig
from cooper_rl.config.infrastructure import StorageConfig
from cooper_rl.errors import DataError
from cooper_rl.machine.scratch import scratch_folder
from cooper_rl.models.verify_rm import VerifyItem, VerifyRM, load_verify_rm, save_verify_rm
from cooper_rl.records.files import read_report, write_records, write_report
from cooper_rl.records.step_metrics import read_metrics, write_metrics
from cooper_rl.schema.data import Pairing, PreferencePair
from cooper_rl.schema.step_metrics import StepMetrics
from cooper_rl.storage.open import open_store

ANCHORS = "anchors.jsonl"
OPTIMIZER = "verify_rm_optimizer.safetensors"
NEVER = 2**62
"""A last step that no run reaches: all files are fetched."""


NUM_METRICS = 1024
"""The newest steps whose metrics are at hand."""


@dataclass
class LogRows:
    """Rows of the steps since the last checkpoint in a run's folder, whose log lacks them."""

    metrics: list[StepMetrics] = field(default_factory=list[StepMetrics])
    pairs: list[PreferencePair] = field(default_factory=list[PreferencePair])


@dataclass(frozen=True)
class RewardState:
    """Everything that the next step depends on."""

    step: int
    """Steps done."""
    verify_rm: VerifyRM
    optimizer: Mapping[str, torch.Tensor]
    """See `distributed.trainable.Trainable.state`."""
    run: RunState
    metrics: Sequence[StepMetrics]
    """Of the newest steps, at most `NUM_METRICS`."""
    pending: Sequence[Pairing]
    anchors: Sequence[VerifyItem]
    unlogged: LogRows | None = None
    """None: the place has no log of this run."""
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
    try:
        with scratch_folder() as draft:
            save_verify_rm(state.verify_rm, draft / "verify_rm")
            save_file(dict(state.optimizer), draft / OPTIMIZER)
            write_report(draft / RUN_STATE, state.run)
            write_metrics(draft / METRICS, state.metrics)
            if state.unlogged is not None:
                _write_piece(draft / LOGS, state.unlogged)
            write_records(draft / PENDING, state.pending)
            rows = (json.dumps(item._asdict(), ensure_ascii=False) + "\n" for item in state.anchors)
            (draft / ANCHORS).write_text("".join(rows), encoding="utf-8")
            store.publish(draft, step=state.step, score=None, versions=versions_here(state.verify_rm))
    except (OSError, SafetensorError) as error:
        raise DataError(
            f"the reward's checkpoint of step {state.step} cannot be drafted ({error}); free space in the "
            "folder for temporary files, or set TMPDIR. The checkpoint before is unharmed"
        ) from error


def versions_here(verify_rm: VerifyRM) -> dict[str, str]:
    """The versions that this process writes into a state: everything that a reward's numbers depend on."""
    return numeric_versions(verify_rm.device, {VERIFY_RM: verify_rm.compute})


def _write_piece(folder: Path, unlogged: LogRows) -> None:
    rows = {
        METRICS: (row.flat() for row in unlogged.metrics),
        PAIRS: (pair.model_dump(mode="json") for pair in unlogged.pairs),
        ROLLOUTS: (),
    }
    write_piece(folder, rows, earlier={})


def read_state(
    store: CheckpointStore, *, device: torch.device, monitor: MonitorConfig | None
) -> RewardState | None:
    """The newest whole checkpoint; None: there is none.

    Args:
        store: Where it is.
        device: Where VerifyRM is to live.
        monitor: Replayed over the steps of a checkpoint of version 0.2.0 or earlier, which holds their
            metrics alone.

    Raises:
        ConfigError: it belongs to a run of another configuration; names the keys.
        DataError: there is a LATEST, but no whole checkpoint; or a file is gone while it is read.
        ModelError: the weights cannot be used.
    """
    with scratch_folder() as work:
        found = store.newest(work, last_step=NEVER, logs=())
        if found is None:
            return None
        place = found.folder
        with read_in_place(place):
            if (place / RUN_STATE).is_file():
                past = Past(
                    read_report(place / RUN_STATE, RunState), read_metrics(place / METRICS), LogRows()
                )
            else:
                past = _read_earlier(store, work, monitor)
            return RewardState(
                step=found.manifest.step,
                verify_rm=load_verify_rm(place / "verify_rm", device=device),
                optimizer=load_file(place / OPTIMIZER),
                run=past.run,
                metrics=past.metrics[-NUM_METRICS:],
                pending=[Pairing.model_validate_json(line) for line in _lines(place / PENDING)],
                anchors=[VerifyItem(**json.loads(line)) for line in _lines(place / ANCHORS)],
                unlogged=past.unlogged,
                versions=found.manifest.versions,
            )


class Past(NamedTuple):
    """The steps before a checkpoint, as far as it holds them."""

    run: RunState
    metrics: list[StepMetrics]
    unlogged: LogRows


def _read_earlier(store: CheckpointStore, work: Path, monitor: MonitorConfig | None) -> Past:
    """Read the rows of all steps, of a checkpoint of version 0.2.0 or earlier."""
    found = store.newest(work, last_step=NEVER, logs=(METRICS, PAIRS))
    assert found is not None, "it was read a moment ago"
    metrics = read_metrics(*found.log[METRICS])
    pairs = [PreferencePair.model_validate_json(line) for path in found.log[PAIRS] for line in _lines(path)]
    # Where the checkpoint itself holds its rows, the log begins with them.
    unlogged = LogRows() if found.manifest.log is not None else LogRows(metrics, pairs)
    return Past(replay(metrics, pairs, monitor), metrics, unlogged)


def _lines(path: Path) -> list[str]:
    # Texts hold other characters that end lines than \n alone.
    return path.read_text(encoding="utf-8").split("\n")[:-1]
