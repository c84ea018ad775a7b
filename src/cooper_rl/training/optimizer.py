"""AdamW over fp32 weights: made, stepped, and turned into named tensors and back for checkpoints.

The weights that are stepped are the fp32 ones; bf16 is used in the forward pass only. (The release steps
bf16 weights, where one update at lr 1e-5 changes only a tenth of them.) What differs between one process and
several is behind `distributed/trainable.py: Trainable`.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch

from cooper_rl.distributed.trainable import TRAINED, Trainable, as_trainable
from cooper_rl.distributed.zero import shape_of
from cooper_rl.errors import ModelError, TrainingError
from cooper_rl.models.lora import adapter_weights, idle_adapters, merged_weights


def make_adamw(
    model: torch.nn.Module, *, lr: float, weight_decay: float, is_offloaded: bool = False
) -> torch.optim.AdamW:
    """AdamW with decay on matrices only (not on biases and norms), as the Hugging Face Trainer does.

    Where it is to step weights in the memory of the CPU or of a GPU, in one pass over them: on a GPU torch's
    default takes the memory of a further copy.
    """
    # Frozen weights stay out: AdamW would make moments for them, 8 bytes each, and decay them.
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    is_one_pass = is_offloaded or any(weight.device.type == "cuda" for weight in trained)
    matrices = [weight for weight in trained if weight.ndim >= 2]
    vectors = [weight for weight in trained if weight.ndim < 2]
    groups = [
        {"params": matrices, "weight_decay": weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=lr, fused=is_one_pass or None)


def set_recomputing(model: Any, *, is_on: bool) -> None:
    """Make backward passes in training mode recompute what forward passes did not keep, or not.

    transformers 5.19, which vLLM brings into the image for GPUs, calls it by another name than 5.23.
    """
    kind = "activation" if hasattr(model, "activation_checkpointing_enable") else "gradient"
    getattr(model, f"{kind}_checkpointing_{'enable' if is_on else 'disable'}")()


@contextmanager
def recomputing(model: Any, *, is_on: bool) -> Iterator[None]:
    """In the block, where it is on, backward passes recompute what forward passes did not keep.

    The library recomputes only in training mode, in which dropout would be on too, and the numbers others
    than without: of the model only the modules that recompute are put into it.
    """
    if is_on:
        set_recomputing(model, is_on=True)
        for module in model.modules():
            if getattr(module, "gradient_checkpointing", False):
                module.training = True
    try:
        yield
    finally:
        # Whatever the block did: dropout left on would make the next score differ from one call to the
        # next.
        model.eval()


def set_warmed_up_lr(
    trained: Trainable | torch.optim.Optimizer, lr: float, *, step: int, warmup_steps: int
) -> None:
    """The learning rate of a step (from 1): rising in a line over `warmup_steps`, then `lr`."""
    for group in trained.param_groups:
        group["lr"] = lr * min(1.0, step / max(warmup_steps, 1))


def apply_gradients(trained: Trainable, max_norm: float, *, name: str) -> float:
    """Clip, step and clear; returns the norm before clipping. Collective.

    Raises:
        TrainingError: the gradient is not finite; nothing was stepped.
    """
    norm = trained.step(max_norm)
    # All ranks see the norm of the whole gradient, so that all of them raise or none does.
    if not norm < float("inf"):
        raise TrainingError(
            f"the {name}'s gradient is {norm}; its weights are unchanged: "
            "lower its learning rate or look at what it was given in this step"
        )
    return norm


class TrainedTensors(NamedTuple):
    """The tensors of a model in a checkpoint; of several processes, the first one alone has them."""

    weights: dict[str, torch.Tensor]
    """State-dict names; fp32."""
    optimizer: dict[str, torch.Tensor]
    """See `Trainable.state`."""
    is_copy: bool = False
    """The tensors are copies, or never change."""


def read_tensors(model: torch.nn.Module, trained: Trainable) -> TrainedTensors:
    """Weights as they are stepped (with adapters: merged), and the optimiser's state. Collective."""
    # The others get nothing from the next two calls, but their parts are collected there.
    weights, state = trained.weights(), trained.state()
    adapters = adapter_weights(model)
    if adapters:
        state |= {f"{name}/{TRAINED}": weights[name] for name in adapters if name in weights}
        with trained.gather():
            # One after the other to the CPU: no second model on a GPU.
            # The folder holds the plain model, which every tool loads; the adapters themselves travel in
            # the optimiser's file.
            merged = merged_weights(model, device=torch.device("cpu"))
            weights = dict(merged) if trained.ranks.is_first else {}
    return TrainedTensors(weights, state, is_copy=trained.is_copying)


def write_tensors(model: torch.nn.Module, trained: Trainable, tensors: TrainedTensors, *, place: str) -> None:
    """Put back what `read_tensors` read; the first process's tensors are taken. Collective.

    Raises:
        ModelError: the tensors belong to another model.
    """
    if not adapter_weights(model):  # else what was merged is not what is stepped
        trained.load_weights(tensors.weights)
    restore_optimizer(model, trained, tensors.optimizer, place=place)


def restore_optimizer(
    model: torch.nn.Module,
    optimizer: Trainable | torch.optim.Optimizer,
    tensors: Mapping[str, torch.Tensor],
    *,
    place: str,
) -> None:
    """Put back `Trainable.state`, and adapters; learning rate and decay stay as configured. Collective.

    Adapters that are not among the tensors change nothing then, though they do not begin as a new run's.

    Raises:
        ModelError: the tensors belong to another model.
    """
    weights = dict(model.named_parameters())
    for full_name, tensor in tensors.items():
        name = full_name.rpartition("/")[0]
        # `step` is a scalar, whatever the shape of its weight.
        if name not in weights or (tensor.ndim and tensor.shape != shape_of(weights[name])):
            raise ModelError(
                f"{place}: optimiser state {full_name!r} of shape {tuple(tensor.shape)} fits no weight of "
                "the model beside it; use the checkpoint's own folders together, and its "
                "cooper.policy.lora.rank"
            )
    trained = as_trainable(model, optimizer)
    # Before the adapters below: with ZeRO both are sends of the first rank, which all ranks must reach in
    # one order.
    trained.load_state(tensors)
    names = adapter_weights(model)
    if names:
        # On the other ranks there is nothing to choose from, but the first one's are sent to them.
        own = {name: weight for name, weight in trained.weights().items() if name in names}
        idle = idle_adapters(own)
        trained.load_weights({name: tensors.get(f"{name}/{TRAINED}", idle[name]) for name in idle})
