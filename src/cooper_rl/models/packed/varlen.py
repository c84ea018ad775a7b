"""Attention of sequences that stand end to end, in one call without padding (rows 5 and 9), for a GPU.

torch's own function for it, which runs flash attention there. It has no CPU form: tests and the check below
use `one_by_one`.
"""

import logging
from collections.abc import Callable, Sequence
from functools import cache
from inspect import signature
from itertools import accumulate
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F

from cooper_rl.models.precision import Compute, is_bfloat16

logger = logging.getLogger(__name__)

TRIED_LENGTHS = (1, 70, 200)
"""Sequences on which a GPU is tried: shorter and longer than a block of its kernels."""
MAX_ERROR = 0.02
"""Relative, of values and gradients against fp32; rounding to bf16 makes about .004."""


class Bounds(NamedTuple):
    """Bounds of S sequences in R rows."""

    offsets: torch.Tensor
    """(S + 1,) int32, from 0 to R."""
    longest: int


Attention = Callable[..., torch.Tensor]


def make_bounds(lengths: Sequence[int], *, device: torch.device) -> Bounds:
    """For sequences of these lengths, end to end."""
    offsets = torch.tensor([0, *accumulate(lengths)], dtype=torch.int32, device=device)
    return Bounds(offsets, max(lengths))


def attend_varlen(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    asking: Bounds,
    asked: Bounds,
    scale: float,
) -> torch.Tensor:
    """(R, heads, d) mix of the values within each sequence; differentiable.

    Args:
        query: (R, heads, d), bf16 on a GPU.
        key: (K, shared heads, d), each for as many neighbouring heads of the query.
        value: Likewise.
        asking: Of the queries. One query a sequence looks at all of its keys.
        asked: Of the keys. The same object as `asking`: causal.
        scale: Of the scores.
    """
    attention = one_by_one if query.device.type == "cpu" else by_torch
    return attention(query, key, value, asking=asking, asked=asked, scale=scale)


def one_by_one(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    asking: Bounds,
    asked: Bounds,
    scale: float,
) -> torch.Tensor:
    """The definition: a call for each sequence."""
    rows = (each.diff().tolist() for each in (asking.offsets, asked.offsets, asked.offsets))
    parts = zip(*(each.split(n) for each, n in zip((query, key, value), rows, strict=True)), strict=True)
    mixed = [
        F.scaled_dot_product_attention(
            *(each.transpose(0, 1)[None] for each in part),
            is_causal=asking is asked,
            scale=scale,
            enable_gqa=key.shape[1] != query.shape[1],
        )[0].transpose(0, 1)
        for part in parts
    ]
    return torch.cat(mixed)


def by_torch(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    asking: Bounds,
    asked: Bounds,
    scale: float,
) -> torch.Tensor:
    """torch's function, on a GPU."""
    # Here and not above: a CPU needs none of it.
    from torch.nn.attention.varlen import varlen_attn

    repeats = query.shape[1] // key.shape[1]
    options: dict[str, Any] = {}
    if _knows_shared_heads(varlen_attn):
        options["enable_gqa"] = repeats > 1
    elif repeats > 1:
        # torch 2.11 knows no shared heads: each stands there once for every query that asks it.
        key, value = (each.repeat_interleave(repeats, dim=1) for each in (key, value))
    mixed: Any = varlen_attn(
        query,
        key,
        value,
        asking.offsets,
        asked.offsets,
        asking.longest,
        asked.longest,
        scale=scale,
        # (-1, 0) is the function's word for causal, (-1, -1) for everything.
        window_size=(-1, 0) if asking is asked else (-1, -1),
        **options,
    )
    return mixed


@cache
def _knows_shared_heads(varlen_attn: Callable[..., Any]) -> bool:
    """Looked up once: the attention of every layer asks."""
    return "enable_gqa" in signature(varlen_attn).parameters


def can_vary(model: Any, compute: Compute) -> bool:
    """True if the model's attention goes through one call: on a GPU in bf16, where this was found to work."""
    if model.device.type != "cuda" or not is_bfloat16(model, compute):
        return False
    config = model.config
    heads = (config.num_attention_heads, config.num_key_value_heads)
    return _works_here(*heads, model.model.layers[0].self_attn.head_dim, model.device)


@cache
def _works_here(num_heads: int, num_shared: int, head_size: int, device: torch.device) -> bool:
    """Tried once for a shape of heads."""
    return agrees(by_torch, num_heads=num_heads, num_shared=num_shared, head_size=head_size, device=device)


def agrees(
    attention: Attention, *, num_heads: int, num_shared: int, head_size: int, device: torch.device
) -> bool:
    """True if an attention computes values and gradients of the definition, in bf16 on a device."""
    # What is drawn in inference mode has no gradient later, and the caller may be in that mode.
    with torch.inference_mode(False):
        return _agrees(attention, num_heads, num_shared, head_size, device)


def _agrees(
    attention: Attention, num_heads: int, num_shared: int, head_size: int, device: torch.device
) -> bool:
    draw = torch.Generator().manual_seed(0)
    bounds = make_bounds(TRIED_LENGTHS, device=device)
    last = make_bounds([1] * len(TRIED_LENGTHS), device=device)
    shapes = [(sum(TRIED_LENGTHS), heads, head_size) for heads in (num_heads, num_shared, num_shared)]
    drawn = [torch.randn(shape, generator=draw).to(device) for shape in shapes]
    for asking in (bounds, last):
        query = drawn[0] if asking is bounds else drawn[0][: len(TRIED_LENGTHS)]
        given = [query, *drawn[1:]]
        options = {"asking": asking, "asked": bounds, "scale": head_size**-0.5}
        try:
            found = _results(attention, [each.bfloat16() for each in given], options)
        except (ImportError, RuntimeError, TypeError) as error:
            logger.warning("attention in padded groups, because torch's for sequences failed: %s", error)
            return False
        expected = _results(one_by_one, given, options)
        errors = [
            float((each.float() - exact).norm() / exact.norm())
            for each, exact in zip(found, expected, strict=True)
        ]
        # Written so that NaN is refused too.
        if not max(errors) <= MAX_ERROR:
            logger.warning("attention in padded groups: torch's for sequences is off by %.3f", max(errors))
            return False
    return True


def _results(
    attention: Attention, given: Sequence[torch.Tensor], options: dict[str, Any]
) -> list[torch.Tensor]:
    """Values, and gradients of query, key and value."""
    # The caller may be a pass without gradients, and autocast would round the definition's too.
    with torch.enable_grad(), torch.autocast(given[0].device.type, enabled=False):
        leaves = [each.detach().clone().requires_grad_() for each in given]
        mixed = attention(*leaves, **options)
        # The sine gives every value a gradient of its own; a plain sum's is 1, in whatever row a value
        # stands.
        return [mixed.detach(), *torch.autograd.grad(mixed.float().sin().sum(), leaves)]
