"""Checkpoints of co-training (row 13): written aside, made visible last, verified on read.

    <checkpoint>/LATEST                 name of the newest complete step folder
    <checkpoint>/step-000020/
        manifest.json                   step, seed, library versions, sha256 of every file
        policy/ verify_rm/              plain Hugging Face folders
        policy_optimizer.safetensors    verify_rm_optimizer.safetensors
        metrics.jsonl  pairs.jsonl      every step since the first

Nothing in a checkpoint is unpickled. Random states are not stored because none outlives a step
(`core/randomness.py`). Deliberately left out: object stores.
"""

import hashlib
import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from cooper_rl.backends.policy import Policy, load_policy, save_policy
from cooper_rl.backends.verify_rm import VerifyRM, load_verify_rm, save_verify_rm
from cooper_rl.errors import DataError, ModelError
from cooper_rl.records import read_report, write_records, write_report
from cooper_rl.schema import PreferencePair, Record

LATEST = "LATEST"
MANIFEST = "manifest.json"
METRICS = "metrics.jsonl"
PAIRS = "pairs.jsonl"


class CheckpointManifest(Record):
    """What a step folder holds."""

    step: int
    seed: int
    torch_version: str
    sha256: dict[str, str]
    """Relative path -> hash of every other file in the folder."""


@dataclass
class TrainingState:
    """Everything that the next step depends on."""

    step: int
    """Steps done."""
    policy: Policy
    verify_rm: VerifyRM
    policy_optimizer: dict[str, torch.Tensor]
    """See `training.optimizer.optimizer_tensors`."""
    verify_rm_optimizer: dict[str, torch.Tensor]
    metrics: list[dict[str, float]]
    """One entry per step since the first."""
    pairs: list[PreferencePair]


def save_checkpoint(folder: Path, state: TrainingState, *, seed: int) -> Path:
    """Write a step folder, then point LATEST at it, then remove older step folders.

    Returns:
        The step folder.

    Raises:
        DataError: the disk refuses; the previous checkpoint stays valid and visible.
    """
    target = folder / f"step-{state.step:06d}"
    draft = folder / f"{target.name}.partial"
    try:
        _remove(draft)
        draft.mkdir(parents=True)
        save_policy(state.policy, draft / "policy")
        save_verify_rm(state.verify_rm, draft / "verify_rm")
        save_file(state.policy_optimizer, draft / "policy_optimizer.safetensors")
        save_file(state.verify_rm_optimizer, draft / "verify_rm_optimizer.safetensors")
        write_metrics(draft / METRICS, state.metrics)
        write_records(draft / PAIRS, state.pairs)
        hashes = {name: _sha256(draft / name) for name in _files(draft)}
        manifest = CheckpointManifest(
            step=state.step, seed=seed, torch_version=torch.__version__, sha256=hashes
        )
        write_report(draft / MANIFEST, manifest)
        _remove(target)
        draft.rename(target)
        pointer = folder / f"{LATEST}.partial"
        pointer.write_text(target.name + "\n", encoding="utf-8")
        pointer.replace(folder / LATEST)
    except (OSError, SafetensorError) as error:
        raise DataError(
            f"{target}: the checkpoint cannot be written ({error}); free space or choose another folder. "
            "The previous checkpoint is unharmed"
        ) from error
    for old in folder.glob("step-*"):
        if old.name != target.name:
            _remove(old)
    return target


def latest_checkpoint(folder: Path) -> Path | None:
    """The newest complete step folder, or None when nothing was completed here.

    Raises:
        DataError: LATEST names a folder that is not there.
    """
    pointer = folder / LATEST
    if not pointer.is_file():
        return None
    target = folder / pointer.read_text(encoding="utf-8").strip()
    if target.parent != folder or not (target / MANIFEST).is_file():
        raise DataError(f"{pointer}: names {target.name!r}, which holds no checkpoint; restore the folder")
    return target


def require_checkpoint(folder: Path) -> Path:
    """Like `latest_checkpoint`, where one must exist.

    Raises:
        DataError: there is none.
    """
    target = latest_checkpoint(folder)
    if target is None:
        raise DataError(f"{folder}: holds no checkpoint (no {LATEST} file); give a folder of train-cooper")
    return target


def load_checkpoint(step_folder: Path, *, device: torch.device) -> TrainingState:
    """Read a step folder back after verifying every hash.

    Raises:
        DataError: a file is missing or changed; names it.
        ModelError: the weights are of another architecture.
    """
    manifest = verify_checkpoint(step_folder)
    try:
        optimizers = [
            load_file(step_folder / f"{name}_optimizer.safetensors") for name in ("policy", "verify_rm")
        ]
    except SafetensorError as error:
        raise ModelError(f"{step_folder}: optimiser state is not safetensors: {error}") from error
    return TrainingState(
        step=manifest.step,
        policy=load_policy(step_folder / "policy", device=device),
        verify_rm=load_verify_rm(step_folder / "verify_rm", device=device),
        policy_optimizer=optimizers[0],
        verify_rm_optimizer=optimizers[1],
        metrics=read_metrics(step_folder / METRICS),
        pairs=read_pairs(step_folder / PAIRS),
    )


def verify_checkpoint(step_folder: Path) -> CheckpointManifest:
    """Compare every file with its hash in the manifest.

    Raises:
        DataError: a file is missing or changed; names it.
    """
    manifest = read_report(step_folder / MANIFEST, CheckpointManifest)
    for name, expected in manifest.sha256.items():
        path = step_folder / name
        if not path.is_file() or _sha256(path) != expected:
            state = "changed" if path.is_file() else "missing"
            raise DataError(f"{path}: {state} since the checkpoint was written; use an earlier checkpoint")
    return manifest


def write_metrics(path: Path, metrics: Sequence[dict[str, float]]) -> None:
    """One JSON object per step."""
    path.write_text("".join(json.dumps(row) + "\n" for row in metrics), encoding="utf-8")


def read_metrics(path: Path) -> list[dict[str, float]]:
    """Read what `write_metrics` wrote."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def read_pairs(path: Path) -> list[PreferencePair]:
    """The pairs of all steps; may be empty, unlike other record files."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [PreferencePair.model_validate_json(line) for line in lines]


def _files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def _sha256(path: Path) -> str:
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _remove(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)
