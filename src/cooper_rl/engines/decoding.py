"""One token for every row at a time, through a cache of keys and values (row 6).

`SharedPromptDecoder` walks the architectures that the packed walk knows (`models/packed/forward.py`): a
prompt's keys and values stand once and are read once for all of its rows, those of the rows grow by some
tokens at a time. Any other model takes `LibraryDecoder`, the library's own forward and cache. Both speak of
the same rows: every prompt is computed once and stands for `samples` neighbouring rows.
"""

from collections.abc import Callable
from typing import Any, Protocol

import torch
import torch.nn.functional as F

from cooper_rl.models.packed.forward import can_pack, project_heads, rotary_angles

GROWTH = 16
"""Tokens by which room for the rows grows. Without room that is spare, products read keys without a copy."""


class Decoder(Protocol):
    """R rows that grow by a token at a time."""

    def step(self, tokens: torch.Tensor) -> torch.Tensor:
        """Append tokens (R,); next-token logits (R, V)."""
        ...

    def keep(self, rows: torch.Tensor) -> None:
        """Go on with these rows only: (n,) int64, rising."""
        ...


def start_decoding(
    model: Any, ids: torch.Tensor, mask: torch.Tensor, *, samples: int
) -> tuple[torch.Tensor, Decoder]:
    """Compute every prompt once.

    Args:
        model: A causal LM.
        ids: (P, T) prompts, padded on the left.
        mask: (P, T) bool, True = a real token.
        samples: Rows of every prompt, neighbours.

    Returns:
        Next-token logits (P * samples, V), and who goes on from there.
    """
    position = (mask.long().cumsum(dim=1) - 1).clamp_min(0)
    # A number would keep a view of the last states, for which a CPU copies the head once for every prompt.
    last = torch.tensor([ids.shape[1] - 1], device=ids.device)
    out = model(
        input_ids=ids, attention_mask=mask, position_ids=position, use_cache=True, logits_to_keep=last
    )
    decoder = (SharedPromptDecoder if can_pack(model) else LibraryDecoder)(
        model, out.past_key_values, mask, position[:, -1] + 1, samples=samples
    )
    return out.logits[:, -1].repeat_interleave(samples, dim=0), decoder


class LibraryDecoder:
    """The model's own forward."""

    def __init__(
        self, model: Any, cache: Any, mask: torch.Tensor, position: torch.Tensor, *, samples: int
    ) -> None:
        """The cache, the mask (P, T) and the next position (P,) of the prompts."""
        cache.batch_repeat_interleave(samples)
        self._model, self._cache = model, cache
        self._mask = mask.repeat_interleave(samples, dim=0)
        self._position = position.repeat_interleave(samples)

    def step(self, tokens: torch.Tensor) -> torch.Tensor:
        """See `Decoder`."""
        # The token that is being added attends to itself.
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


class SharedPromptDecoder:
    """Qwen2, Qwen3 and Llama, by matrix products, which round the scores to the model's precision."""

    def __init__(
        self, model: Any, cache: Any, mask: torch.Tensor, position: torch.Tensor, *, samples: int
    ) -> None:
        """See `LibraryDecoder`."""
        self._model, self._padding, self._samples, self._length = model, ~mask, samples, 0
        self._position = position.repeat_interleave(samples)
        self._slots = torch.arange(len(self._position), device=position.device)
        """(R,) int64: `samples` for every prompt, of which some may be free."""
        # Kept once per prompt and not per completion: with groups of 16 the prompts' keys would be most of
        # the cache.
        self._prompts = torch.stack([torch.stack([layer.keys, layer.values]) for layer in cache.layers])
        """(layers, keys and values, P, heads, T, d)."""
        _, _, _, heads, _, size = self._prompts.shape
        # Grows with what is drawn: room for `max_new_tokens` at once would mostly be padding that is
        # multiplied.
        none = self._prompts.new_zeros(2, len(self._position), heads, 0, size)
        self._own = [none for _ in cache.layers]
        """Of every layer (keys and values, R, heads, room, d)."""

    def step(self, tokens: torch.Tensor) -> torch.Tensor:
        """See `Decoder`."""
        # In steps of GROWTH: growing by one token would copy the whole cache for every token.
        if self._length == self._own[0].shape[3]:
            self._replace_own(lambda own: F.pad(own, (0, 0, 0, GROWTH)))
        decoder = self._model.model
        hidden = decoder.embed_tokens(tokens)
        rotary = rotary_angles(decoder, hidden, self._position)
        for layer, prompts, own in zip(decoder.layers, self._prompts, self._own, strict=True):
            attention = layer.self_attn
            normed = layer.input_layernorm(hidden)
            query = project_heads(attention, "q", normed, rotary)
            own[0, :, :, self._length] = project_heads(attention, "k", normed, rotary)
            own[1, :, :, self._length] = project_heads(attention, "v", normed, None)
            mixed = self._attend(query * attention.scaling, prompts, own)
            hidden = hidden + attention.o_proj(mixed.flatten(1))
            hidden = hidden + layer.mlp(layer.post_attention_layernorm(hidden))
        self._position = self._position + 1
        self._length += 1
        return self._model.lm_head(decoder.norm(hidden))

    def keep(self, rows: torch.Tensor) -> None:
        """See `Decoder`."""
        self._replace_own(lambda own: own[:, rows])
        self._position, self._slots = self._position[rows], self._slots[rows]
        prompts, places = self._slots.div(self._samples, rounding_mode="floor").unique(return_inverse=True)
        # Only when all completions of a prompt have ended is its part of the cache free.
        if len(prompts) < len(self._padding):
            self._prompts, self._padding = self._prompts[:, :, prompts], self._padding[prompts]
            self._slots = places * self._samples + self._slots % self._samples

    def _replace_own(self, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
        """One layer at a time, so that no more than one of them is held twice."""
        for place, own in enumerate(self._own):
            self._own[place] = change(own)

    def _attend(self, query: torch.Tensor, prompts: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
        """(R, heads, d) mix of the values, for a query (R, heads, d) that is scaled.

        By matrix products, in which a prompt's rows, and heads that share a key, stand below each other.
        """
        query = query.unflatten(1, (own.shape[2], -1))
        to_prompts = self._by_prompt(query) @ prompts[0].transpose(2, 3)
        to_prompts.masked_fill_(self._padding[:, None, None], -torch.inf)
        to_own = query @ own[0].transpose(2, 3)
        # Room that was allocated ahead holds zeros, which would get weight in the softmax.
        to_own[..., self._length + 1 :] = -torch.inf
        # One softmax over both parts: each alone would be normalised by itself.
        weights = torch.cat([self._by_row(to_prompts, query), to_own], dim=-1).softmax(dim=-1)
        of_prompts, of_own = weights.split([to_prompts.shape[-1], to_own.shape[-1]], dim=-1)
        mixed = self._by_row(self._by_prompt(of_prompts) @ prompts[1], query)
        return (mixed + of_own @ own[1]).flatten(1, 2)

    def _by_prompt(self, rows: torch.Tensor) -> torch.Tensor:
        """(P, shared heads, samples * heads that share, n) from (R, shared heads, heads that share, n)."""
        slots = rows.new_zeros(len(self._padding) * self._samples, *rows.shape[1:])
        slots[self._slots] = rows
        return slots.unflatten(0, (-1, self._samples)).transpose(1, 2).flatten(2, 3)

    def _by_row(self, slots: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
        """The way back; the query tells how many heads share."""
        rows = slots.unflatten(2, (self._samples, query.shape[2])).transpose(1, 2).flatten(0, 1)
        return rows[self._slots]
