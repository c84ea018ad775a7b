"""Norms, gates, rotary angles and the softmax of a packed walk, each as one kernel on a GPU (rows 5 and 9).

As separate operations each reads and writes all states: more than half of a policy update of 1.5B weights on
an H100. `torch.compile` makes a kernel of each function. A CPU, and a GPU where nothing can be compiled, take
the operations that stand beside the call.
"""

import logging
from collections.abc import Callable
from functools import cache, wraps
from typing import ParamSpec

import torch
import torch.nn.functional as F

logger = logging.getLogger(__name__)

Given = ParamSpec("Given")


def is_fused(states: torch.Tensor) -> bool:
    """True if the functions below take these states: on a GPU that can compile them."""
    return states.device.type == "cuda" and can_compile(states.device)


@cache
def can_compile(device: torch.device) -> bool:
    """Tried once, with the smallest of them."""
    try:
        gate(torch.ones(2, 8, device=device), torch.ones(2, 8, device=device))
    except Exception as error:  # of Triton, its C compiler or the driver: they have no kind in common
        first = str(error).strip().splitlines()[:1]
        logger.warning(
            "norms, gates and softmax run as separate operations, which is slower: torch.compile failed "
            "(%s: %s). It needs a C compiler and Python's headers (Debian: gcc, libc6-dev, python3-dev)",
            type(error).__name__,
            *(first or ["no message"]),
        )
        return False
    return True


def _kernel(function: Callable[Given, torch.Tensor]) -> Callable[Given, torch.Tensor]:
    """A function that is compiled at its first call: the compiler's import alone takes seconds."""

    @wraps(function)
    def run(*given: Given.args, **named: Given.kwargs) -> torch.Tensor:
        return _compiled(function)(*given, **named)

    return run


@cache
def _compiled(function: Callable[Given, torch.Tensor]) -> Callable[Given, torch.Tensor]:
    # Sizes differ from batch to batch, and between policy and VerifyRM.
    return torch.compile(function, dynamic=True)


@_kernel
def turn(heads: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Heads (N, heads, d) turned by the rotary angles (N, 1, d), half of whose sines are negated."""
    turned = heads.float() * cos.float() + heads.float().roll(heads.shape[-1] // 2, dims=-1) * sin.float()
    return turned.to(heads.dtype)


@_kernel
def rms_norm(states: torch.Tensor, weight: torch.Tensor, epsilon: float, dtype: torch.dtype) -> torch.Tensor:
    """(..., H) states, normed in fp32 and rounded once."""
    exact = states.float()
    scale = (exact.square().mean(dim=-1, keepdim=True) + epsilon).rsqrt()
    return (exact * scale * weight).to(dtype)


@_kernel
def gate(gates: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
    """silu(gates) * states, of one shape."""
    return (F.silu(gates.float()) * states.float()).to(states.dtype)


@_kernel
def target_logprobs(logits: torch.Tensor, targets: torch.Tensor, temperature: float) -> torch.Tensor:
    """(K,) fp32 log-probabilities of the targets (K,) under the logits (K, V) at a temperature."""
    logits = logits.float() / temperature
    is_target = torch.arange(logits.shape[1], device=logits.device) == targets[:, None]
    # A sum over all columns and no `gather`: the backward of that would write a second matrix of this size.
    return torch.where(is_target, logits, 0.0).sum(dim=1) - logits.logsumexp(dim=1)
