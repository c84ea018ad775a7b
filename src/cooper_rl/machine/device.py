"""The one place that decides where models run."""

import torch

from cooper_rl.errors import ConfigError


def pick_device() -> torch.device:
    """This process's CUDA device, else Apple's GPU (MPS), else the CPU. Called by stages, passed down."""
    if torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    if torch.backends.mps.is_available():
        return torch.device("mps")
    return torch.device("cpu")


def read_device(name: str | torch.device | None) -> torch.device:
    """The device that a caller names; None: `pick_device`.

    Raises:
        ConfigError: torch knows no such device.
    """
    if name is None:
        return pick_device()
    try:
        return torch.device(name)
    except RuntimeError as error:
        raise ConfigError(
            f"device={name!r}: torch has no such device; write cpu, cuda, cuda:1 or mps"
        ) from error


def float64_device(device: torch.device) -> torch.device:
    """The device for float64 beside another one: the same, or the CPU since MPS has no such type."""
    return torch.device("cpu") if device.type == "mps" else device
