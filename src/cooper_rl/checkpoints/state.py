"""The contents of a checkpoint (row 13): copied out of the models, written to files, read back.

    policy/ verify_rm/              plain Hugging Face folders
    policy_optimizer.safetensors    verify_rm_optimizer.safetensors
    run_state.json                  what the next step depends on beside the models
    pending.jsonl                   pairs that the next step learns from, where pairs may be a step late
    pending_rollouts.jsonl          rollouts of the next steps, where they are drawn ahead
    logs/                           rows of the steps since the checkpoint before; in the draft alone, the
                                    store keeps them beside the checkpoints

Nothing in a checkpoint is unpickled. Random states are not stored because none outlives a step
(`randomness.py`). `checkpoints/store.py` keeps the files, and `checkpoints/writer.py` says when.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from cooper_rl.checkpoints.logs import LOGS, METRICS, PAIRS, ROLLOUTS, write_piece
from cooper_rl.checkpoints.reading import read_in_place
from cooper_rl.checkpoints.run_state import RUN_STATE, RunState
from cooper_rl.errors import DataError, ModelError
from cooper_rl.models.policy import Policy, load_policy, share_weights
from cooper_rl.models.verify_rm import VerifyRM, load_verify_rm
from cooper_rl.models.verify_rm_card import write_card
from cooper_rl.records.files import read_report, write_records, write_report
from cooper_rl.schema.data import DrawnStep, Pairing, PreferencePair, Record, RolloutSample
from cooper_rl.schema.step_metrics import StepMetrics

PENDING = "pending.jsonl"
PENDING_ROLLOUTS = "pending_rollouts.jsonl"
R = TypeVar("R", bound=Record)


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
    metrics: list[StepMetrics]
    """One entry per step since the last checkpoint."""
    pairs: list[PreferencePair]
    """Pairs of these steps that VerifyRM has learned from."""
    pending: list[Pairing] = field(default_factory=list[Pairing])
    """Pairs that it learns from in the next step; see `cooper.pairs.max_staleness`."""
    drawn: list[DrawnStep] = field(default_factory=list[DrawnStep])
    """Rollouts of the next steps; see `cooper.max_rollout_staleness`."""
    rollouts: list[RolloutSample] = field(default_factory=list[RolloutSample])
    """A few of each of these steps, for the audit."""
    run: RunState = field(default_factory=RunState)
    """The summary of the steps before."""
    earlier: Mapping[str, Sequence[Path]] = field(default_factory=dict[str, Sequence[Path]])
    """Kind of row -> files with the rows of all steps that this place's log does not hold yet: those of the
    iteration before, or of a checkpoint of an earlier version."""
    weights: dict[str, dict[str, torch.Tensor]] = field(default_factory=dict[str, dict[str, torch.Tensor]])
    """`policy` and `verify_rm` -> fp32 weights, where the models themselves do not hold them."""


@dataclass(frozen=True)
class Snapshot:
    """A copy of a training state that later steps do not change."""

    step: int
    models: dict[str, Any]
    """Folder name -> model, for its configuration; the weights are the copies below."""
    weights: dict[str, dict[str, torch.Tensor]]
    optimizers: dict[str, dict[str, torch.Tensor]]
    metrics: list[StepMetrics]
    pairs: list[PreferencePair]
    pending: list[Pairing]
    drawn: list[DrawnStep]
    rollouts: list[RolloutSample]
    run: RunState
    earlier: Mapping[str, Sequence[Path]]


def take_snapshot(state: TrainingState, *, is_copy: bool = False) -> Snapshot:
    """Copy what the next step will change into the memory of the CPU.

    Args:
        state: what to copy.
        is_copy: its weights and optimiser state are copies already, or never change.
    """
    models = {"policy": state.policy.model, "verify_rm": state.verify_rm.model}
    # ZeRO collects its weights into new CPU tensors anyway: a second copy would be the model once more in
    # memory.
    copied = dict[str, torch.Tensor] if is_copy else _copy
    return Snapshot(
        step=state.step,
        models=models,
        weights={
            name: copied(state.weights.get(name) or model.state_dict()) for name, model in models.items()
        },
        optimizers={
            "policy": copied(state.policy_optimizer),
            "verify_rm": copied(state.verify_rm_optimizer),
        },
        metrics=list(state.metrics),
        pairs=list(state.pairs),
        pending=list(state.pending),
        drawn=list(state.drawn),
        rollouts=list(state.rollouts),
        run=state.run,
        earlier=state.earlier,
    )


def write_snapshot(snapshot: Snapshot, folder: Path) -> None:
    """Write all files of a checkpoint but the tokenizers, which `save_tokenizers` wrote before.

    Raises:
        DataError: the disk refuses.
    """
    try:
        for name, model in snapshot.models.items():
            model.save_pretrained(folder / name, state_dict=snapshot.weights[name])
            _say_fp32(folder / name / "config.json")
        for name, tensors in snapshot.optimizers.items():
            save_file(tensors, folder / f"{name}_optimizer.safetensors")
        write_report(folder / RUN_STATE, snapshot.run)
        write_records(folder / PENDING, snapshot.pending)
        if snapshot.drawn:
            write_records(folder / PENDING_ROLLOUTS, snapshot.drawn)
        rows = {
            METRICS: (row.flat() for row in snapshot.metrics),
            PAIRS: (pair.model_dump(mode="json") for pair in snapshot.pairs),
            ROLLOUTS: (rollout.model_dump(mode="json") for rollout in snapshot.rollouts),
        }
        write_piece(folder / LOGS, rows, earlier=snapshot.earlier)
        share_weights(folder, like=folder / PENDING)
    except (OSError, SafetensorError) as error:
        raise DataError(
            f"{folder}: the checkpoint cannot be written ({error}); free space or choose another folder. "
            "The previous checkpoint is unharmed"
        ) from error


def _say_fp32(config: Path) -> None:
    """A model that computes in bf16 says so of its file too, which holds the fp32 weights."""
    values = json.loads(config.read_text(encoding="utf-8"))
    if values.get("dtype") != "float32":
        config.write_text(json.dumps(values | {"dtype": "float32"}, indent=2) + "\n", encoding="utf-8")


def save_tokenizers(state: TrainingState, folder: Path) -> None:
    """Both tokenizers and VerifyRM's card; not while a step uses them, which they do not allow.

    Raises:
        DataError: the disk refuses.
    """
    try:
        for name, tokenizer in (("policy", state.policy.tokenizer), ("verify_rm", state.verify_rm.tokenizer)):
            tokenizer.save_pretrained(folder / name)
        write_card(folder / "verify_rm", state.verify_rm.model)
    except OSError as error:
        raise DataError(f"{folder}: the tokenizers cannot be written ({error}); free space there") from error


def read_state(
    folder: Path, *, step: int, device: torch.device, prompt_template: str | None = None
) -> TrainingState:
    """Read a step folder whose hashes were verified; without its log.

    Raises:
        DataError: a file is gone since then.
        ModelError: the weights are of another architecture.
    """
    with read_in_place(folder):
        try:
            optimizers = [
                load_file(folder / f"{name}_optimizer.safetensors") for name in ("policy", "verify_rm")
            ]
        except SafetensorError as error:
            raise ModelError(f"{folder}: optimiser state is not safetensors: {error}") from error
        return TrainingState(
            step=step,
            policy=load_policy(folder / "policy", device=device, prompt_template=prompt_template),
            verify_rm=load_verify_rm(folder / "verify_rm", device=device),
            policy_optimizer=optimizers[0],
            verify_rm_optimizer=optimizers[1],
            metrics=[],
            pairs=[],
            pending=read_lines(folder / PENDING, Pairing),
            drawn=read_lines(ahead, DrawnStep) if (ahead := folder / PENDING_ROLLOUTS).is_file() else [],
            run=read_report(folder / RUN_STATE, RunState) if (folder / RUN_STATE).is_file() else RunState(),
        )


def read_lines(path: Path, kind: type[R]) -> list[R]:
    """The records of a file that may be empty, unlike others."""
    with path.open(encoding="utf-8", newline="\n") as lines:  # texts hold other characters that end lines
        return [kind.model_validate_json(line) for line in lines]


def _copy(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Copies in CPU memory; what shared its memory (tied weights) still does."""
    copies: dict[tuple[object, ...], torch.Tensor] = {}
    for tensor in _each(tensors):
        key = _place(tensor)
        if key not in copies:
            copies[key] = torch.empty_like(tensor, device="cpu").copy_(tensor)
    return {name: copies[_place(tensor)] for name, tensor in tensors.items()}


def _each(tensors: Mapping[str, torch.Tensor]) -> Iterable[torch.Tensor]:
    return (tensor.detach() for tensor in tensors.values())


def _place(tensor: torch.Tensor) -> tuple[object, ...]:
    return (tensor.device, tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride())
