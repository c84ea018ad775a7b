"""Versions and hardware that a run's numbers depend on (row 13).

They are written into every manifest and compared when a run continues.
"""

import os
import platform
import re
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version

import torch
from torch import distributed

from cooper_rl.machine.processor import processor_model, vector_instructions
from cooper_rl.machine.sources import source_digest

LIBRARIES = (
    "antlr4-python3-runtime",
    "cooper-rl",
    "deepspeed",
    "latex2sympy2_extended",
    "math-verify",
    "numpy",
    "peft",
    "safetensors",
    "sympy",
    "tokenizers",
    "torch",
    "transformers",
    "vllm",
)
SOURCES = {
    "code of rewards": ("verdicts", "domains"),
    "code of training": (
        "method", "negatives", "models", "engines", "distributed", "training", "randomness.py",
    ),
}  # fmt: skip
"""Our own modules that make numbers: a version's name stands for many states of them."""

POLICY, VERIFY_RM = "policy and reference", "VerifyRM"
"""The models whose type is recorded. The reference computes in the policy's."""
VARIABLES = "variables of MKL, oneDNN and ATen"
_CHOOSES_KERNELS = re.compile(r"(ATEN|DNNL|MKL|ONEDNN)_(?!.*(VERBOSE|CACHE|JIT))\w+")
"""Variables by which a library chooses kernels; not those of its log and of the memory for its kernels."""


def numeric_versions(device: torch.device, precision: Mapping[str, str]) -> dict[str, str]:
    """Everything beside configuration and data that the numbers depend on.

    Called by the thread that trains: the number of threads is its own.

    Args:
        device: Where the numbers are made.
        precision: Model, such as `VERIFY_RM` -> type of its forward passes (`models/precision.settle`).
    """
    libraries = {name: _version(name) for name in LIBRARIES}
    return {
        **libraries,
        **{name: source_digest(*modules) for name, modules in SOURCES.items()},
        "processes": str(distributed.get_world_size() if distributed.is_initialized() else 1),
        "python": platform.python_version(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "CPU capability": torch.backends.cpu.get_cpu_capability(),
        "processor": processor_model(),
        "vector instructions": vector_instructions(),
        VARIABLES: _variables(os.environ),
        "threads": str(torch.get_num_threads()),
        **{_precision_of(model): name for model, name in precision.items()},
    }


def recorded_precision(versions: Mapping[str, str], model: str) -> str | None:
    """The type in which a run computed on a CPU, which chooses it by timing; None: not recorded, or a GPU."""
    return versions.get(_precision_of(model)) if versions.get("device") == "cpu" else None


def say_differences(there: Mapping[str, str], here: Mapping[str, str]) -> str | None:
    """The reasons why a checkpoint may not be continued bit for bit; None where nothing differs."""
    changed = [
        f"{name} is {here[name]} and was {there[name]}"
        for name in sorted(here)
        if name in there and there[name] != here[name]
    ]
    if changed:
        return f"continues, but not bit for bit, because {', '.join(changed)}"
    unknown = sorted(name for name in here if name not in there)
    if unknown:
        return (
            "continues, perhaps not bit for bit, because the version that wrote it did not record "
            + ", ".join(unknown)
        )
    return None


def _precision_of(model: str) -> str:
    return f"precision of {model}"


def _variables(environment: Mapping[str, str]) -> str:
    """One entry for all: a variable that is no longer set differs too."""
    found = sorted(name for name in environment if _CHOOSES_KERNELS.fullmatch(name))
    return " ".join(f"{name}={environment[name]}" for name in found) or "none"


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:  # a source tree that was never installed
        return "not installed"
