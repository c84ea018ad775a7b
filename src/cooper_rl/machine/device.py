"""The one place that decides where models run."""

import torch


def pick_device() -> torch.device:
    """This process's CUDA device, else the CPU. Called by stages, passed down from there."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", torch.cuda.current_device())
