"""The type of forward passes, bf16 or fp32; the weights that are stepped stay in fp32
(`training/optimizer.py`).

A processor's flags do not say how fast it is: oneDNN may be held to an older instruction set, and emulates
bf16 then, a hundred times slower than fp32. So both types are tried on one product, by a clock: two starts on
one processor may choose differently. A checkpoint therefore records the choice (`checkpoints/versions.py`),
and a run that continues on a CPU keeps it.
"""

import logging
import time
from collections.abc import Callable
from functools import cache
from typing import Any, Literal

import torch

from cooper_rl.machine.threads import SMALL_MODEL_PARAMETERS

logger = logging.getLogger(__name__)

Compute = Literal["auto", "float32", "bfloat16"]

PRODUCT = (128, 512, 512)
"""Rows, inner size and columns: large enough to show a processor's speed, and .1 s where it emulates."""
NUM_TRIES = 3
MIN_GAIN = 1.25
"""The least speed-up of bf16 that counts: less does not pay for its rounding, and could be chance."""
EMULATED_GAIN = 0.1
"""Slower than this, bf16 is emulated, and a run that computed in it could not go on in any useful time."""


def is_bfloat16(model: Any, compute: Compute) -> bool:
    """True if the forward pass runs in bf16.

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
    return bfloat16_gain() >= MIN_GAIN


def settle(model: Any, compute: Compute, *, recorded: str | None = None) -> Compute:
    """The type that `auto` means for this model; ask before its weights are divided.

    Args:
        model: Of transformers.
        compute: As configured.
        recorded: The type in which the run that is continued computed on a CPU, if any. It is kept on a CPU,
            except where bf16 is emulated: the difference of versions says so then.
    """
    if compute == "auto" and model.device.type == "cpu":
        if recorded == "float32":
            return "float32"
        if recorded == "bfloat16":
            return "bfloat16" if bfloat16_gain() >= EMULATED_GAIN else "float32"
    return "bfloat16" if is_bfloat16(model, compute) else "float32"


def round_weights(model: Any) -> None:
    """Weights in bf16; buffers, such as the rotary frequencies, keep their precision."""
    for weight in model.parameters():
        # Not model.to(): rotary frequencies in bf16 would be off by whole tokens at long distances.
        weight.data = weight.data.to(torch.bfloat16)


def round_layers(model: Any) -> None:
    """Weights of linear layers in bf16, for a frozen model whose passes are bf16: they give the same bits.

    Autocast rounds these weights in every pass. It leaves embeddings and norms alone, so that they stay: in
    bf16 the sum of the layers' outputs would be rounded after every layer too.
    """
    kept = {id(weight) for weight in model.get_input_embeddings().parameters()}
    for layer in model.modules():
        if isinstance(layer, torch.nn.Linear):
            for weight in layer.parameters(recurse=False):
                # A tied head's weight is the embedding's.
                if id(weight) not in kept:
                    weight.data = weight.data.to(torch.bfloat16)


@cache
def bfloat16_gain() -> float:
    """The speed of products in bf16, as a multiple of that in fp32; tried once in a process."""
    return compare_types()


def compare_types(clock: Callable[[], float] = time.thread_time) -> float:
    """The time of a product in fp32 over that of the same in bf16, on the CPU.

    Args:
        clock: Seconds, read before and after each product. The default counts this thread's alone, so that
            other programs decide nothing.
    """
    in_bfloat16, in_float32 = (_seconds(dtype, clock) for dtype in (torch.bfloat16, torch.float32))
    gain = in_float32 / max(in_bfloat16, 1e-9)  # a clock may be coarser than the product
    rows, inner, columns = PRODUCT
    logger.info(
        "this processor multiplies %dx%d by %dx%d in %.2f ms in bf16 and in %.2f ms in fp32: auto is %s",
        rows, inner, inner, columns, 1000 * in_bfloat16, 1000 * in_float32,
        "bf16" if gain >= MIN_GAIN else "fp32",
    )  # fmt: skip
    return gain


def _seconds(dtype: torch.dtype, clock: Callable[[], float]) -> float:
    """The least of a few tries; the first product compiles a kernel and is not one of them."""
    rows, inner, columns = PRODUCT
    left, right = torch.ones(rows, inner, dtype=dtype), torch.ones(inner, columns, dtype=dtype)
    torch.mm(left, right)
    seconds = []
    for _ in range(NUM_TRIES):
        started = clock()
        torch.mm(left, right)
        seconds.append(clock() - started)
    return min(seconds)
