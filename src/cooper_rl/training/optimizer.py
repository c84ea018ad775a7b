"""AdamW over fp32 weights: made, stepped, and turned into named tensors and back for checkpoints.

The weights that are stepped are the fp32 ones; bf16 is used in the forward pass only. (The release steps
bf16 weights, where one update at lr 1e-5 changes only a tenth of them.) One process steps with torch's AdamW,
several with `distributed/zero.py`; what an update does with either is here.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple

import torch

from cooper_rl.distributed.ranks import ALONE, Ranks
from cooper_rl.distributed.zero import ZeroAdamW, shape_of
from cooper_rl.errors import ModelError, TrainingError
from cooper_rl.models.lora import adapter_weights, idle_adapters, merged_weights

TRAINED = "trained"
"""Name in the optimiser's state of the weights that are stepped, where the model's folder holds others: an
average of them, or what they were merged into."""
Stepper = torch.optim.Optimizer | ZeroAdamW
"""What steps one model's weights."""


def make_adamw(
    model: torch.nn.Module, *, lr: float, weight_decay: float, is_offloaded: bool = False
) -> torch.optim.AdamW:
    """AdamW with decay on matrices only (not on biases and norms), as the Hugging Face Trainer does.

    Where it is to step weights in the memory of the CPU or of a GPU, in one pass over them: on a GPU torch's
    default takes the memory of a further copy.
    """
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    is_one_pass = is_offloaded or any(weight.device.type == "cuda" for weight in trained)
    matrices = [weight for weight in trained if weight.ndim >= 2]
    vectors = [weight for weight in trained if weight.ndim < 2]
    groups = [
        {"params": matrices, "weight_decay": weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=lr, fused=is_one_pass or None)


def ranks_of(optimizer: Stepper) -> Ranks:
    """The processes that step together."""
    return optimizer.ranks if isinstance(optimizer, ZeroAdamW) else ALONE


def whole(optimizer: Stepper) -> AbstractContextManager[None]:
    """In the block the model's weights can be used, wherever they are kept otherwise."""
    return optimizer.whole() if isinstance(optimizer, ZeroAdamW) else nullcontext()


def set_recomputing(model: Any, *, is_on: bool) -> None:
    """Whether backward passes in training mode recompute what forward passes did not keep.

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
        model.eval()


def backward(loss: torch.Tensor, optimizer: Stepper) -> None:
    """Add the gradient of a part of an update's loss, whose parts on all ranks add up."""
    if isinstance(optimizer, ZeroAdamW):
        optimizer.backward(loss)
    else:
        loss.backward()


def set_warmed_up_lr(optimizer: Stepper, lr: float, *, step: int, warmup_steps: int) -> None:
    """The learning rate of a step (from 1): rising in a line over `warmup_steps`, then `lr`."""
    for group in optimizer.param_groups:
        group["lr"] = lr * min(1.0, step / max(warmup_steps, 1))


def apply_gradients(model: torch.nn.Module, optimizer: Stepper, max_norm: float, *, name: str) -> float:
    """Clip, step and clear; returns the norm before clipping.

    Raises:
        TrainingError: the gradient is not finite; nothing was stepped.
    """
    if isinstance(optimizer, ZeroAdamW):
        norm = optimizer.step()
    else:
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm).item()
        if norm < float("inf"):
            optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    if not norm < float("inf"):
        raise TrainingError(
            f"the {name}'s gradient is {norm}; its weights are unchanged: "
            "lower its learning rate or look at what it was given in this step"
        )
    return norm


class TrainedTensors(NamedTuple):
    """What a checkpoint keeps of a model; of several processes, the first one alone has it."""

    weights: dict[str, torch.Tensor]
    """State-dict names; fp32."""
    optimizer: dict[str, torch.Tensor]
    """See `optimizer_tensors`."""
    is_copy: bool = False
    """What it holds is a copy, or never changes."""


def read_tensors(model: torch.nn.Module, optimizer: Stepper) -> TrainedTensors:
    """Weights as they are stepped (with adapters: merged), and the optimiser's state.

    All ranks must call it.
    """
    if isinstance(optimizer, ZeroAdamW):
        weights, state = optimizer.weights(), optimizer.tensors()
    else:
        weights, state = model.state_dict(), optimizer_tensors(model, optimizer)
    adapters = adapter_weights(model)
    if adapters:
        state |= {f"{name}/{TRAINED}": weights[name] for name in adapters if name in weights}
        with whole(optimizer):
            # One after the other to the CPU: no second model on a GPU.
            merged = merged_weights(model, device=torch.device("cpu"))
            weights = dict(merged) if ranks_of(optimizer).is_first else {}
    return TrainedTensors(weights, state, is_copy=isinstance(optimizer, ZeroAdamW))


def write_tensors(model: torch.nn.Module, optimizer: Stepper, tensors: TrainedTensors, *, place: str) -> None:
    """Put back what `read_tensors` read; the first process's tensors are taken.

    Raises:
        ModelError: the tensors belong to another model.
    """
    is_adapted = bool(adapter_weights(model))  # then what was merged is not what is stepped
    if isinstance(optimizer, ZeroAdamW):
        if not is_adapted:
            optimizer.load_weights(tensors.weights)
    else:
        if not is_adapted:
            model.load_state_dict(tensors.weights)
        optimizer.state.clear()
    restore_optimizer(model, optimizer, tensors.optimizer, place=place)


def keep_weights(model: torch.nn.Module, optimizer: Stepper) -> Callable[[], None]:
    """Copy the weights that are stepped, on the device; returns what puts them back, on all ranks at once.

    The optimiser's moments stay as they are: their gradients are of the weights that are put back, and
    without the newest the next update would be much the same.
    """
    if isinstance(optimizer, ZeroAdamW):
        return optimizer.keep()
    kept = [
        (weight, weight.detach().clone(), optimizer.state.get(weight, {}).get(TRAINED))
        for weight in model.parameters()
    ]

    @torch.no_grad()
    def put_back() -> None:
        for weight, value, trained in kept:
            weight.copy_(value)
            state = optimizer.state.get(weight, {})
            state.pop(TRAINED, None)
            if trained is not None:
                state[TRAINED] = trained

    return put_back


def optimizer_tensors(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    """The optimiser's state as `<weight name>/<state name>`; empty before the first step."""
    tensors: dict[str, torch.Tensor] = {}
    for name, weight in model.named_parameters():
        state: dict[str, Any] = optimizer.state.get(weight, {})
        for key in sorted(state):
            tensors[f"{name}/{key}"] = state[key]
    return tensors


def restore_optimizer(
    model: torch.nn.Module, optimizer: Stepper, tensors: Mapping[str, torch.Tensor], *, place: str
) -> None:
    """Put back what `optimizer_tensors` took, and adapters; learning rate and decay stay as configured.

    Adapters that are not among the tensors change nothing then, though they do not begin as a new run's.

    Raises:
        ModelError: the tensors belong to another model.
    """
    weights = dict(model.named_parameters())
    for full_name, tensor in tensors.items():
        name = full_name.rpartition("/")[0]
        if name not in weights or (tensor.ndim and tensor.shape != shape_of(weights[name])):
            raise ModelError(
                f"{place}: optimiser state {full_name!r} of shape {tuple(tensor.shape)} fits no weight of "
                "the model beside it; use the checkpoint's own folders together, and its "
                "cooper.policy.lora.rank"
            )
    if isinstance(optimizer, ZeroAdamW):
        optimizer.load_state(tensors)
    else:
        for full_name, tensor in tensors.items():
            name, _, key = full_name.rpartition("/")
            optimizer.state[weights[name]][key] = tensor.to(weights[name].device)
    if adapter_weights(model):
        _restore_adapters(model, optimizer, tensors)


def _restore_adapters(
    model: torch.nn.Module, optimizer: Stepper, tensors: Mapping[str, torch.Tensor]
) -> None:
    if isinstance(optimizer, ZeroAdamW):
        idle = idle_adapters(optimizer.weights())
        optimizer.load_weights({name: tensors.get(f"{name}/{TRAINED}", idle[name]) for name in idle})
        return
    adapters = adapter_weights(model)
    for name, tensor in idle_adapters(adapters).items():
        adapters[name].data.copy_(tensors.get(f"{name}/{TRAINED}", tensor))
        optimizer.state.get(adapters[name], {}).pop(TRAINED, None)
