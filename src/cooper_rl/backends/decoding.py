"""One token for every row at a time, through a cache of keys and values (row 6).

`StaticDecoder` walks the architectures that the packed walk knows (`packed_forward.py`) over one buffer that
is allocated once: nothing is copied as the rows grow, and rows that are done are dropped in place. Any other
model takes `LibraryDecoder`, the library's own forward and cache. Both speak of the same rows: every prompt
is computed once and stands for `samples` neighbouring rows.
"""

from typing import Any, Protocol

import torch
import torch.nn.functional as F

from cooper_rl.backends.packed_forward import can_pack, project_heads, rotary_angles


class Decoder(Protocol):
    """R rows that grow by a token at a time."""

    def step(self, tokens: torch.Tensor) -> torch.Tensor:
        """Append tokens (R,); next-token logits (R, V)."""
        ...

    def keep(self, rows: torch.Tensor) -> None:
        """Go on with these rows only: (n,) int64, rising."""
        ...


def start_decoding(
    model: Any, ids: torch.Tensor, mask: torch.Tensor, *, samples: int, max_new_tokens: int
) -> tuple[torch.Tensor, Decoder]:
    """Compute every prompt once.

    Args:
        model: A causal LM.
        ids: (P, T) prompts, padded on the left.
        mask: (P, T) bool, True = a real token.
        samples: Rows of every prompt, neighbours.
        max_new_tokens: Tokens that rows can grow by.

    Returns:
        Next-token logits (P * samples, V), and who goes on from there.
    """
    position = (mask.long().cumsum(dim=1) - 1).clamp_min(0)
    out = model(input_ids=ids, attention_mask=mask, position_ids=position, use_cache=True, logits_to_keep=1)
    mask = mask.repeat_interleave(samples, dim=0)
    position = position[:, -1].repeat_interleave(samples) + 1
    decoder = (StaticDecoder if can_pack(model) else LibraryDecoder)(
        model, out.past_key_values, mask, position, samples=samples, max_new_tokens=max_new_tokens
    )
    return out.logits[:, -1].repeat_interleave(samples, dim=0), decoder


class LibraryDecoder:
    """The model's own forward."""

    def __init__(
        self,
        model: Any,
        cache: Any,
        mask: torch.Tensor,
        position: torch.Tensor,
        *,
        samples: int,
        max_new_tokens: int,
    ) -> None:
        """The cache is that of the prompts; mask (R, T) and position (R,) are those of the rows."""
        cache.batch_repeat_interleave(samples)
        self._model, self._cache, self._mask, self._position = model, cache, mask, position

    def step(self, tokens: torch.Tensor) -> torch.Tensor:
        """See `Decoder`."""
        self._mask = F.pad(self._mask, (0, 1), value=True)
        out = self._model(
            input_ids=tokens[:, None],
            attention_mask=self._mask,
            position_ids=self._position[:, None],
            past_key_values=self._cache,
            use_cache=True,
        )
        self._position = self._position + 1
        return out.logits[:, -1]

    def keep(self, rows: torch.Tensor) -> None:
        """See `Decoder`."""
        self._cache.batch_select_indices(rows)
        self._mask, self._position = self._mask[rows], self._position[rows]


class StaticDecoder:
    """Qwen2, Qwen3 and Llama over one buffer of keys and values."""

    def __init__(
        self,
        model: Any,
        cache: Any,
        mask: torch.Tensor,
        position: torch.Tensor,
        *,
        samples: int,
        max_new_tokens: int,
    ) -> None:
        """See `LibraryDecoder`."""
        self._model, self._position, self._length = model, position, mask.shape[1]
        room = self._length + max_new_tokens
        self._mask = F.pad(mask, (0, max_new_tokens), value=True)
        first = cache.layers[0].keys
        self._buffer = first.new_zeros(len(cache.layers), 2, len(mask), first.shape[1], room, first.shape[3])
        """(layers, keys and values, R, heads, room, d)."""
        for layer, into in zip(cache.layers, self._buffer, strict=True):
            into[0, :, :, : self._length] = layer.keys.repeat_interleave(samples, dim=0)
            into[1, :, :, : self._length] = layer.values.repeat_interleave(samples, dim=0)

    def step(self, tokens: torch.Tensor) -> torch.Tensor:
        """See `Decoder`."""
        decoder = self._model.model
        hidden = decoder.embed_tokens(tokens)
        rotary = rotary_angles(decoder, hidden, self._position)
        self._length += 1
        mask = self._mask[:, None, None, : self._length]
        for layer, (keys, values) in zip(decoder.layers, self._buffer, strict=True):
            attention = layer.self_attn
            normed = layer.input_layernorm(hidden)
            query = project_heads(attention, "q", normed, rotary)
            keys[:, :, self._length - 1] = project_heads(attention, "k", normed, rotary)
            values[:, :, self._length - 1] = project_heads(attention, "v", normed, None)
            mixed = F.scaled_dot_product_attention(
                query[:, :, None],
                keys[:, :, : self._length],
                values[:, :, : self._length],
                attn_mask=mask,
                scale=attention.scaling,
                enable_gqa=query.shape[1] != keys.shape[1],
            )
            hidden = hidden + attention.o_proj(mixed.flatten(1))
            hidden = hidden + layer.mlp(layer.post_attention_layernorm(hidden))
        self._position = self._position + 1
        return self._model.lm_head(decoder.norm(hidden))

    def keep(self, rows: torch.Tensor) -> None:
        """See `Decoder`."""
        used = self._buffer[:, :, :, :, : self._length]
        used[:, :, : len(rows)] = used[:, :, rows]
        self._buffer = self._buffer[:, :, : len(rows)]
        self._mask, self._position = self._mask[rows], self._position[rows]
