"""Sequences of token ids to padded tensors, in batches under a token budget."""

from collections.abc import Sequence
from typing import NamedTuple

import torch


class PaddedBatch(NamedTuple):
    """Right-padded sequences; B sequences of at most T tokens."""

    input_ids: torch.Tensor
    """(B, T) int64."""
    attention_mask: torch.Tensor
    """(B, T) bool; True = a real token."""


def split_by_tokens(lengths: Sequence[int], max_tokens: int) -> list[list[int]]:
    """Group indices of similar length so that (longest length) x (count) stays within `max_tokens`.

    Longest first, so that the first batch needs the most memory. A sequence longer than the budget is a
    batch of its own. Every index appears exactly once; ties keep input order.
    """
    order = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    batches: list[list[int]] = []
    for index in order:
        if batches and lengths[batches[-1][0]] * (len(batches[-1]) + 1) <= max_tokens:
            batches[-1].append(index)
        else:
            batches.append([index])
    return batches


def pad_right(sequences: Sequence[Sequence[int]], *, pad_id: int, device: torch.device) -> PaddedBatch:
    """Pad to the longest of these sequences."""
    longest = max(len(sequence) for sequence in sequences)
    input_ids = torch.tensor([[*ids, *[pad_id] * (longest - len(ids))] for ids in sequences])
    lengths = torch.tensor([len(ids) for ids in sequences])
    attention_mask = torch.arange(longest)[None, :] < lengths[:, None]
    return PaddedBatch(input_ids.to(device), attention_mask.to(device))
