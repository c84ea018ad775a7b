"""RMS norm of a packed walk in bf16 (rows 5 and 9), in half of the passes over the states.

The library's norm is six operations, and its backward a dozen, each a pass over memory; between the matrix
products of a small model that is what takes the time. In fp32 the library's own is taken, so that a laptop's
results are those of the library.
"""

from typing import Any

import torch

from cooper_rl.models.packed.fused import is_fused, rms_norm


def normed(norm: Any, states: torch.Tensor) -> torch.Tensor:
    """(..., H) states after the module `norm`, under autocast in its type; differentiable."""
    kind = states.device.type
    if not torch.is_autocast_enabled(kind):
        return norm(states)
    given = states, norm.weight, norm.variance_epsilon, torch.get_autocast_dtype(kind)
    return rms_norm(*given) if is_fused(states) else _RMSNorm.apply(*given)


class _RMSNorm(torch.autograd.Function):
    """y = x / sqrt(mean(x²) + epsilon) * weight, computed in fp32 and rounded once."""

    @staticmethod
    def forward(ctx: Any, states: Any, weight: Any, epsilon: float, dtype: torch.dtype) -> Any:
        # Squares are summed in fp32 within one pass, without a squared copy of the states.
        scale = torch.linalg.vector_norm(states, dim=-1, keepdim=True, dtype=torch.float32).square_()
        scale.div_(states.shape[-1]).add_(epsilon).rsqrt_()
        ctx.save_for_backward(states, weight, scale)
        return (states * scale).mul_(weight).to(dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        states, weight, scale = ctx.saved_tensors
        gradient = gradients[0].float()
        weight = weight.float()
        parts = gradient * states
        # Skipped for frozen weights, such as those below adapters: it is a pass over all states.
        to_weight = scale.flatten() @ parts.flatten(0, -2) if ctx.needs_input_grad[1] else None
        # What depends on the scale: d scale / d x = -scale³ x / H.
        along = (parts @ weight)[..., None] * scale.pow(3).div_(-states.shape[-1])
        to_states = (gradient * weight).mul_(scale).addcmul_(states, along)
        return to_states, to_weight, None, None
