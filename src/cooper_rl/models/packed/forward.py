"""Packed sequences through a model (rows 5 and 9): Qwen2, Qwen3 and Llama walked without padding.

The walk uses the model's own modules, so weights, norms and rotary scaling are what the checkpoint says. It
differs from the library's walk in what it does not compute: padding, beginnings that sequences share, and for
VerifyRM, in the last layer, everything but the last tokens, from which alone the logit is read. Tests hold it
to the library's numbers. A model with sliding windows, dropout or quantised layers takes the library's walk
over padded batches.
"""

from typing import Any

import torch
from torch.utils.checkpoint import checkpoint
from transformers.activations import SiLUActivation

from cooper_rl.models.packed.attention import attend
from cooper_rl.models.packed.fused import gate, is_fused, turn
from cooper_rl.models.packed.norms import normed
from cooper_rl.models.packed.packing import PackedBatch
from cooper_rl.models.packed.varlen import attend_varlen, make_bounds
from cooper_rl.models.precision import Compute, is_bfloat16

ARCHITECTURES = frozenset({"qwen2", "qwen3", "llama"})
CPU_TOKENS = {False: 2048, True: 4096}
"""A pass on a CPU takes no more at a time, in fp32 and in bf16: its activations then stay near the caches."""


def use_packed(model: Any, *, is_on: bool) -> None:
    """Let a model be walked below where that computes the same, or by the library alone."""
    model.is_left_to_library = not is_on


def is_packed(model: Any) -> bool:
    """The last value that `use_packed` was given."""
    return not getattr(model, "is_left_to_library", False)


def can_pack(model: Any) -> bool:
    """True if the walk below computes the same as the model's own, and may replace it."""
    config = model.config
    layer_types = getattr(config, "layer_types", None) or ["full_attention"]
    return (
        is_packed(model)
        and config.model_type in ARCHITECTURES
        # The masks of `packing.py` know causal attention over everything before, and no window.
        and all(kind == "full_attention" for kind in layer_types)
        # Dropout draws for padded positions too: another layout of the tokens would be other noise.
        and not (model.training and getattr(config, "attention_dropout", 0.0))
        and all(_is_plain(layer.mlp.up_proj) for layer in model.model.layers)
    )


def _is_plain(projection: Any) -> bool:
    """Not quantised; adapters may stand beside it."""
    return type(getattr(projection, "base_layer", projection)) is torch.nn.Linear


def limit_tokens(model: Any, compute: Compute, max_tokens: int) -> int:
    """Tokens of one pass within a budget."""
    if model.device.type != "cpu":
        return max_tokens
    return min(max_tokens, CPU_TOKENS[is_bfloat16(model, compute)])


def packed_states(model: Any, batch: PackedBatch) -> torch.Tensor:
    """Final hidden states (N, H) of a causal LM; differentiable."""
    decoder = model.model
    hidden, _ = _walk(decoder, decoder.layers, batch)
    return normed(decoder.norm, hidden)


def packed_logits(model: Any, batch: PackedBatch) -> torch.Tensor:
    """VerifyRM's raw logits (S,), in the order of the sequences that were packed; differentiable."""
    decoder = model.model
    hidden, rotary = _walk(decoder, decoder.layers[:-1], batch)
    last = _last_layer(decoder.layers[-1], hidden, rotary, batch)
    logits = model.score(normed(decoder.norm, last))[:, 0]
    # Sequences were reordered for their shared beginnings; callers know their own order only.
    back = torch.empty(len(batch.order), dtype=torch.int64, device=logits.device)
    back[torch.tensor(batch.order, device=logits.device)] = torch.arange(len(back), device=logits.device)
    return logits[back]


def _walk(decoder: Any, layers: Any, batch: PackedBatch) -> Any:
    """(N, H) hidden states after these layers, and the rotary angles."""
    hidden = decoder.embed_tokens(batch.token_ids)
    rotary = rotary_angles(decoder, hidden, batch.positions)
    # The flag stays set after an update; a pass without gradients keeps nothing that could be made again.
    is_recomputed = torch.is_grad_enabled() and getattr(decoder, "gradient_checkpointing", False)
    for layer in layers:
        if is_recomputed:
            # Non-reentrant: the reentrant form loses gradients where the input needs none, as below
            # adapters.
            hidden = checkpoint(_layer, layer, hidden, rotary, batch, use_reentrant=False)
        else:
            hidden = _layer(layer, hidden, rotary, batch)
    return hidden, rotary


def _layer(layer: Any, hidden: torch.Tensor, rotary: Any, batch: PackedBatch) -> Any:
    attention = layer.self_attn
    states = normed(layer.input_layernorm, hidden)
    query = project_heads(attention, "q", states, rotary)
    key = project_heads(attention, "k", states, rotary)
    value = project_heads(attention, "v", states, None)
    mixed = _mix(query, key, value, batch, scale=attention.scaling)
    # Back to one row per token: a token that several sequences share was asked for in one place only.
    hidden = hidden + attention.o_proj(mixed.index_select(0, batch.sources))
    return hidden + _feed_forward(layer.mlp, normed(layer.post_attention_layernorm, hidden))


def _feed_forward(mlp: Any, states: torch.Tensor) -> torch.Tensor:
    """The layer's gated feed-forward of (N, H) states."""
    if is_fused(states) and isinstance(mlp.act_fn, (torch.nn.SiLU, SiLUActivation)):
        return mlp.down_proj(gate(mlp.gate_proj(states), mlp.up_proj(states)))
    return mlp(states)


def _mix(query: Any, key: Any, value: Any, batch: PackedBatch, *, scale: float) -> torch.Tensor:
    """(R, H) attention of every row: of the whole rows, or of the groups' flattened queries."""
    if batch.whole is not None:
        tokens, bounds = batch.whole
        q, k, v = (_gather(each, tokens) for each in (query, key, value))
        return attend_varlen(q, k, v, asking=bounds, asked=bounds, scale=scale).flatten(1)
    joined = torch.cat([key, value], dim=1)
    parts = []
    for group in batch.groups:
        # (n, heads, Q or L, d); padding stands on the right, where no query looks that counts.
        q = _rows(query, group.queries)
        k, v = _rows(joined, group.tokens).chunk(2, dim=1)
        mixed = attend(q, k, v, group.mask, scale=scale)
        parts.append(mixed.transpose(1, 2).flatten(2).flatten(0, 1))
    return torch.cat(parts)


def _last_layer(layer: Any, hidden: torch.Tensor, rotary: Any, batch: PackedBatch) -> Any:
    """(S, H) hidden states of the last tokens, groups in order."""
    attention = layer.self_attn
    states = normed(layer.input_layernorm, hidden)
    key = project_heads(attention, "k", states, rotary)
    value = project_heads(attention, "v", states, None)
    last = batch.last_tokens
    # The logit is read at the last token: of the last layer, nobody reads another token's output.
    query = project_heads(attention, "q", states[last], (rotary[0][last], rotary[1][last]))
    mixed = _mix_last(query, key, value, batch, scale=attention.scaling)
    kept = hidden[last] + attention.o_proj(mixed)
    return kept + _feed_forward(layer.mlp, normed(layer.post_attention_layernorm, kept))


def _mix_last(query: Any, key: Any, value: Any, batch: PackedBatch, *, scale: float) -> torch.Tensor:
    """(S, H) attention of the last tokens, whose queries alone are given."""
    if batch.whole is not None:
        tokens, bounds = batch.whole
        k, v = (_gather(each, tokens) for each in (key, value))
        ones = make_bounds([1] * len(query), device=query.device)
        return attend_varlen(query, k, v, asking=ones, asked=bounds, scale=scale).flatten(1)
    joined = torch.cat([key, value], dim=1)
    parts = []
    start = 0
    for group in batch.groups:
        k, v = _rows(joined, group.tokens).chunk(2, dim=1)
        q = query[start : start + len(group.members), :, None]
        start += len(group.members)
        columns = torch.arange(k.shape[2], device=k.device)
        is_real = (columns < group.lengths[:, None])[:, None]
        mixed = attend(q, k, v, is_real, scale=scale)
        parts.append(mixed[:, :, 0].flatten(1))
    return torch.cat(parts)


def _gather(heads: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """(R, heads, d) from (N, heads, d) and places (R,)."""
    # index_select's backward adds whole rows, which indexing's does not.
    return heads.flatten(1).index_select(0, places).unflatten(1, heads.shape[1:])


def _rows(heads: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """(n, heads, L, d) from (N, heads, d) and places (n, L)."""
    return _gather(heads, places.flatten()).unflatten(0, places.shape).transpose(1, 2)


def rotary_angles(decoder: Any, hidden: torch.Tensor, positions: torch.Tensor) -> Any:
    """Cosines and sines (N, 1, d) of the positions (N,), as `project_heads` takes them."""
    cos, sin = decoder.rotary_emb(hidden[None], positions[None])
    first, second = sin[0].chunk(2, dim=-1)
    # The library negates half of every head; half of the sines is negated here, once for all layers.
    return _rounded(cos[0, :, None]), _rounded(torch.cat([-first, second], dim=-1)[:, None])


def project_heads(attention: Any, name: str, states: torch.Tensor, rotary: Any) -> torch.Tensor:
    """(N, heads, d) projection, with Qwen3's norm where there is one, turned by the rotary angles."""
    heads = getattr(attention, f"{name}_proj")(states).unflatten(-1, (-1, attention.head_dim))
    norm = getattr(attention, f"{name}_norm", None)
    if norm is not None:
        heads = normed(norm, heads)
    if rotary is None:
        return heads
    # An engine draws without autocast: of one token a row, starting kernels is what takes time.
    if torch.is_autocast_enabled(heads.device.type) and is_fused(heads):
        return turn(heads, *rotary)
    # Of our own, because autograd would keep three tensors of this size for products whose backward needs
    # the angles alone.
    return _Turned.apply(heads, *rotary)


class _Turned(torch.autograd.Function):
    """Heads (N, heads, d) turned by the rotary angles, which both halves share; the backward turns back."""

    @staticmethod
    def forward(ctx: Any, heads: Any, cos: Any, sin: Any) -> Any:
        ctx.save_for_backward(cos, sin)
        return torch.addcmul(heads * cos, heads.roll(heads.shape[-1] // 2, dims=-1), sin)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        cos, sin = ctx.saved_tensors
        turned = gradients[0]
        return (
            torch.addcmul(turned * cos, turned.roll(turned.shape[-1] // 2, dims=-1), sin, value=-1),
            None,
            None,
        )


def _rounded(states: torch.Tensor) -> torch.Tensor:
    """In autocast's type: here once, and not in every projection that reads them."""
    kind = states.device.type
    return states.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else states
