"""Attention of a packed walk's rows (rows 5 and 9), with a backward that a CPU does quickly in bf16.

torch's own backward takes ten times its forward there; matrix products take twice it. The forward is torch's
everywhere, so that a training pass and one without gradients say the same.
"""

from typing import Any

import torch
import torch.nn.functional as F


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
    if query.device.type == "cpu" and query.dtype == torch.bfloat16 and torch.is_grad_enabled():
        return _ByProducts.apply(query, key, value, mask, scale)
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


class _ByProducts(torch.autograd.Function):
    """Torch's forward; the backward computes the weights again, by plain matrix products."""

    @staticmethod
    def forward(ctx: Any, query: Any, key: Any, value: Any, mask: Any, scale: float) -> Any:
        ctx.save_for_backward(query, key, value, mask)
        ctx.scale = scale
        return _by_torch(query, key, value, mask, scale)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        *saved, mask = ctx.saved_tensors
        query, key, value = (each.detach().requires_grad_() for each in saved)
        with torch.enable_grad():
            mixed = _by_products(query, key, value, mask, scale=ctx.scale)
        return (*torch.autograd.grad(mixed, (query, key, value), gradients), None, None)


def _by_products(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, *, scale: float
) -> torch.Tensor:
    # Heads that share a key stand below each other, as further queries.
    folded = (query * scale).unflatten(1, (key.shape[1], -1)).flatten(2, 3)
    scores = (folded @ key.transpose(2, 3)).unflatten(2, (-1, query.shape[2]))
    if mask is None:
        mask = torch.ones(query.shape[2], key.shape[2], dtype=torch.bool).tril()[None]
    scores.masked_fill_(~mask[:, None, None], -torch.inf)
    mixed = scores.softmax(dim=-1).flatten(2, 3) @ value
    return mixed.unflatten(2, (-1, query.shape[2])).flatten(1, 2)
