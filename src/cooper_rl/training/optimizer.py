"""AdamW over fp32 weights: made, stepped, and turned into named tensors and back for checkpoints.

The weights that are stepped are the fp32 ones; bf16 is used in the forward pass only. (The release steps
bf16 weights, where one update at lr 1e-5 changes only a tenth of them.)
"""

from typing import Any

import torch

from cooper_rl.errors import ModelError, TrainingError


def make_adamw(model: torch.nn.Module, *, lr: float, weight_decay: float) -> torch.optim.AdamW:
    """AdamW with decay on matrices only (not on biases and norms), as the Hugging Face Trainer does."""
    matrices = [weight for weight in model.parameters() if weight.ndim >= 2]
    vectors = [weight for weight in model.parameters() if weight.ndim < 2]
    groups = [
        {"params": matrices, "weight_decay": weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=lr)


def set_warmed_up_lr(optimizer: torch.optim.Optimizer, lr: float, *, step: int, warmup_steps: int) -> None:
    """The learning rate of a step (from 1): rising in a line over `warmup_steps`, then `lr`."""
    for group in optimizer.param_groups:
        group["lr"] = lr * min(1.0, step / max(warmup_steps, 1))


def apply_gradients(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, max_norm: float, *, name: str
) -> float:
    """Clip, step and clear; returns the norm before clipping.

    Raises:
        TrainingError: the gradient is not finite; nothing was stepped.
    """
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm).item()
    if not norm < float("inf"):
        optimizer.zero_grad(set_to_none=True)
        raise TrainingError(
            f"the {name}'s gradient is {norm}; its weights are unchanged: "
            "lower its learning rate or look at what it was given in this step"
        )
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return norm


def optimizer_tensors(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    """The optimiser's state as `<weight name>/<state name>`; empty before the first step."""
    tensors: dict[str, torch.Tensor] = {}
    for name, weight in model.named_parameters():
        state: dict[str, Any] = optimizer.state.get(weight, {})
        for key in sorted(state):
            tensors[f"{name}/{key}"] = state[key]
    return tensors


def restore_optimizer(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, tensors: dict[str, torch.Tensor], *, place: str
) -> None:
    """Put back what `optimizer_tensors` took; learning rate and decay stay as configured.

    Raises:
        ModelError: the tensors belong to another model.
    """
    weights = dict(model.named_parameters())
    for full_name, tensor in tensors.items():
        name, _, key = full_name.rpartition("/")
        if name not in weights or (tensor.ndim and tensor.shape != weights[name].shape):
            raise ModelError(
                f"{place}: optimiser state {full_name!r} of shape {tuple(tensor.shape)} fits no weight of "
                "the model beside it; use the checkpoint's own folders together"
            )
        state = optimizer.state[weights[name]]
        state[key] = tensor if key == "step" else tensor.to(weights[name].device)
