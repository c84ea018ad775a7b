"""The one place that decides where models run."""

import torch


def pick_device() -> torch.device:
    """The first CUDA device, else the CPU. Called by stages, passed down from there."""
    return torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
