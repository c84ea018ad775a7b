"""Attention of a packed walk's rows (rows 5 and 9), as a CPU does it quickly in bf16: by matrix products.

torch's own backward takes ten times its forward there; matrix products take twice it, and less with the
forward's weights. A training pass and one without gradients compute the same.
"""

from typing import Any

import torch
import torch.nn.functional as F

KEPT_KEYS = 512
"""Longer rows compute their weights again in the backward, which would take more memory than the states."""


def attend(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, *, scale: float
) -> torch.Tensor:
    """(n, heads, Q, d) mix of the values; differentiable.

    Args:
        query: (n, heads, Q, d).
        key: (n, shared heads, L, d), each for as many neighbouring heads of the query.
        value: Likewise.
        mask: (n, Q, L) bool, True = the query looks there; None: causal, with Q = L.
        scale: Of the scores.
    """
    if query.device.type == "cpu" and query.dtype == torch.bfloat16:
        # fp32 on a CPU and everything on a GPU have kernels with a fast backward.
        return ByProducts.apply(query, key, value, mask, scale)
    return _by_torch(query, key, value, mask, scale)


def _by_torch(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, scale: float
) -> torch.Tensor:
    return F.scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=None if mask is None else mask[:, None],
        is_causal=mask is None,
        scale=scale,
        enable_gqa=key.shape[1] != query.shape[1],
    )


class ByProducts(torch.autograd.Function):
    """Heads that share a key stand below each other, as further queries (n, shared heads, ..., d)."""

    @staticmethod
    def forward(ctx: Any, query: Any, key: Any, value: Any, mask: Any, scale: float) -> Any:
        ctx.scale = scale
        if key.shape[2] > KEPT_KEYS:
            # Weights grow with the square of the length, states with the length.
            ctx.save_for_backward(query, key, value, mask, None)
            return _by_torch(query, key, value, mask, scale)
        weights = _weights(query, key, mask, scale)
        ctx.save_for_backward(query, key, value, mask, weights)
        return _unfolded(weights @ value, query)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        query, key, value, mask, weights = ctx.saved_tensors
        if weights is None:
            weights = _weights(query, key, mask, ctx.scale)
        to_mixed = _folded(gradients[0], key)
        to_value = weights.transpose(2, 3) @ to_mixed
        # In one pass, which adds up in fp32.
        to_weights = to_mixed @ value.transpose(2, 3)
        to_scores = torch.ops.aten._softmax_backward_data(to_weights, weights, -1, weights.dtype)
        to_query = _unfolded((to_scores @ key).mul_(ctx.scale), query)
        to_key = to_scores.transpose(2, 3) @ _folded(query * ctx.scale, key)
        return to_query, to_key, to_value, None, None


def _weights(query: Any, key: Any, mask: Any, scale: float) -> torch.Tensor:
    """(n, shared heads, queries that share a key, L)."""
    num_queries = query.shape[2]
    scores = _folded(query * scale, key) @ key.transpose(2, 3)
    if mask is None:
        # Causal only if queries and keys are the same tokens, which the caller says by giving no mask.
        mask = torch.ones(num_queries, num_queries, dtype=torch.bool).tril()[None]
    # In place, before the softmax: exp(-inf) is an exact 0, so padding changes no other weight.
    scores.unflatten(2, (-1, num_queries)).masked_fill_(~mask[:, None, None], -torch.inf)
    return scores.softmax(dim=-1)


def _folded(heads: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    return heads.unflatten(1, (key.shape[1], -1)).flatten(2, 3)


def _unfolded(rows: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
    return rows.unflatten(2, (-1, query.shape[2])).flatten(1, 2)
