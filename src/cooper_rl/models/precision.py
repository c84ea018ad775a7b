"""Whether forward passes run in bf16; the weights that are stepped stay in fp32 (`training/optimizer.py`)."""

from pathlib import Path
from typing import Any, Literal

import torch

from cooper_rl.machine.threads import SMALL_MODEL_PARAMETERS

Compute = Literal["auto", "float32", "bfloat16"]


def is_bfloat16(model: Any, compute: Compute) -> bool:
    """Whether the forward pass runs in bf16.

    `auto` takes it where the hardware multiplies bf16 itself, but not for models under 10M parameters on a
    CPU: they gain little, and the laptop's results stay the same on every machine.
    """
    if compute != "auto":
        return compute == "bfloat16"
    if model.device.type == "cuda":
        return torch.cuda.is_bf16_supported()
    # A model of that size is bound by the number of operations and not by their width.
    if model.device.type != "cpu" or model.num_parameters() < SMALL_MODEL_PARAMETERS:
        return False
    capability = torch.backends.cpu.get_cpu_capability()
    # Without the instructions bf16 products are emulated, several times slower than fp32.
    return capability.startswith("AVX512") and _has_cpu_bfloat16()


def settle(model: Any, compute: Compute) -> Compute:
    """What `auto` means for this model, to be asked before its weights are divided."""
    return "bfloat16" if is_bfloat16(model, compute) else "float32"


def round_weights(model: Any) -> None:
    """Weights in bf16; buffers, such as the rotary frequencies, keep their precision."""
    for weight in model.parameters():
        # Not model.to(): rotary frequencies in bf16 would be off by whole tokens at long distances.
        weight.data = weight.data.to(torch.bfloat16)


def _has_cpu_bfloat16() -> bool:
    flags = Path("/proc/cpuinfo")
    return flags.is_file() and "avx512_bf16" in flags.read_text(encoding="utf-8", errors="replace")
