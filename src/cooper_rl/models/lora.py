"""LoRA through peft (rows 9, 10 and 13): trains small matrices beside the policy's frozen ones.

Without its adapters the model is the policy that it started from, which so needs no copy of its own. VerifyRM
has no adapters, and adapters have no dropout. The engine gets merged weights.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from cooper_rl.errors import ConfigError, how_to_install

NAME = "default"
"""The adapters' name in peft."""


def add_adapters(model: Any, *, rank: int, alpha: float, seed: int) -> None:
    """Freeze the model and put adapters beside every linear layer but the head; they change nothing yet.

    Raises:
        ConfigError: peft is not installed.
    """
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError as error:
        raise ConfigError(
            f"cooper.policy.lora needs peft ({error}): {how_to_install('lora')}; or set "
            "cooper.policy.lora=null"
        ) from error
    model.requires_grad_(False)
    config = LoraConfig(r=rank, lora_alpha=alpha, target_modules="all-linear", lora_dropout=0.0)  # pyright: ignore[reportArgumentType] fractions work
    # peft draws from the global generator: without the fork every later draw of the process would shift.
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        inject_adapter_in_model(config, model, adapter_name=NAME)
    model.eval()


def adapter_weights(model: Any) -> dict[str, torch.nn.Parameter]:
    """Names and weights of the adapters; empty where there are none."""
    return {name: weight for name, weight in model.named_parameters() if ".lora_" in name}


def idle_adapters(weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Adapters that change nothing, from others by name."""
    return {
        # B alone decides: the product A B is zero, and A must not be, or neither would ever get a gradient.
        name: torch.zeros_like(weight) if ".lora_B." in name else weight
        for name, weight in weights.items()
    }


@torch.no_grad()
def merged_weights(model: Any, *, device: torch.device | None = None) -> Iterator[tuple[str, torch.Tensor]]:
    """Names and tensors of the plain model that computes the same; its own where it has no adapters.

    What is merged is put onto `device`, where one is given.
    """
    adapted = dict(_adapted(model))
    for name, tensor in model.state_dict().items():
        layer, _, leaf = name.partition(".base_layer.")
        if layer in adapted and leaf == "weight":
            # One weight at a time, as a generator: the merged model never exists beside the trained one.
            yield f"{layer}.weight", (tensor + adapted[layer].get_delta_weight(NAME)).to(device)
        elif ".lora_" not in name:
            yield name.replace(".base_layer.", "."), tensor


@contextmanager
def without_adapters(model: Any) -> Iterator[None]:
    """In the block the model computes as the one that the adapters were added to."""
    layers = [layer for _, layer in _adapted(model)]
    for layer in layers:
        # peft also takes the adapters' gradients away; its `enable_adapters(True)` gives them back.
        layer.enable_adapters(False)
    try:
        yield
    finally:
        for layer in layers:
            # Also after an error: the same model is the policy, and would train without its adapters from
            # then on.
            layer.enable_adapters(True)


def _adapted(model: Any) -> Iterator[tuple[str, Any]]:
    return ((name, layer) for name, layer in model.named_modules() if hasattr(layer, "get_delta_weight"))
