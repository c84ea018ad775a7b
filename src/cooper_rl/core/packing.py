"""Sequences of token ids laid end to end, without padding, every shared beginning once (rows 5 and 9).

Completions of one problem begin with the same prompt, or with the same question and reference answer; a
causal model computes the same for them, so they are kept once. Attention alone needs rows: `groups` says
which tokens make up which sequence. Deliberately left out: the model's walk over a batch
(`backends/packed_forward.py`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

MIN_LENGTH_RATIO = 0.8
"""The shortest sequence of an attention group against its longest."""


@dataclass(frozen=True)
class AttentionGroup:
    """n sequences of similar length, right-padded to L."""

    tokens: torch.Tensor
    """(n, L) int64: place of every token in the batch; padding repeats the sequence's last token."""
    lengths: torch.Tensor
    """(n,) int64."""
    members: list[int]
    """Which of the given sequences these are."""


@dataclass(frozen=True)
class PackedBatch:
    """N different tokens of S sequences."""

    token_ids: torch.Tensor
    """(N,) int64."""
    positions: torch.Tensor
    """(N,) int64, from 0 in every sequence."""
    places: list[list[int]]
    """Where each of the given sequences' tokens stand."""
    groups: list[AttentionGroup]
    """Every sequence is in exactly one; longest first."""
    sources: torch.Tensor
    """(N,) int64: where every token first stands in the concatenation of the flattened groups."""
    last_tokens: torch.Tensor
    """(S,) int64: the last token of each sequence, groups in order."""
    order: list[int]
    """(S,) which of the given sequences `last_tokens` speaks of."""


def pack(sequences: Sequence[Sequence[int]], *, device: torch.device) -> PackedBatch:
    """Lay sequences end to end; a beginning that several share is kept once.

    None may be empty.
    """
    token_ids: list[int] = []
    positions: list[int] = []
    places: list[list[int]] = [[]] * len(sequences)
    before: Sequence[int] = ()
    before_places: list[int] = []
    # In lexicographic order, whoever shares most with a sequence stands right before it.
    for index in sorted(range(len(sequences)), key=lambda i: tuple(sequences[i])):
        ids = sequences[index]
        shared = common_prefix(before, ids)
        start = len(token_ids)
        token_ids += ids[shared:]
        positions += range(shared, len(ids))
        places[index] = before_places[:shared] + list(range(start, len(token_ids)))
        before, before_places = ids, places[index]
    groups = [_group(members, places, device) for members in _similar([len(ids) for ids in sequences])]
    flat = torch.cat([group.tokens.flatten() for group in groups])
    sources = torch.empty(len(token_ids), dtype=torch.int64, device=device)
    # Written backwards, so that the first of equal places is what remains, on every device.
    sources[flat.flip(0)] = torch.arange(len(flat) - 1, -1, -1, device=device)
    return PackedBatch(
        token_ids=torch.tensor(token_ids, device=device),
        positions=torch.tensor(positions, device=device),
        places=places,
        groups=groups,
        sources=sources,
        last_tokens=torch.cat([group.tokens[:, -1] for group in groups]),
        order=[member for group in groups for member in group.members],
    )


def common_prefix(first: Sequence[int], second: Sequence[int]) -> int:
    """How many tokens two sequences begin with alike; one token of the second is always left."""
    low, high = 0, min(len(first), len(second) - 1)
    while low < high:
        middle = (low + high + 1) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def split_packed(units: Sequence[Sequence[Sequence[int]]], max_tokens: int) -> list[list[int]]:
    """Indices of units (one sequence, or a pair that must stay together) in packed batches under a budget.

    Units that begin alike come together. The count of a batch is what it computes, shared beginnings once. A
    unit over the budget is a batch of its own; every index appears exactly once.
    """
    batches: list[list[int]] = []
    total = 0
    before: Sequence[int] = ()
    for index in sorted(range(len(units)), key=lambda i: tuple(units[i][0])):
        unit = units[index]
        alone = count_packed(unit)
        added = alone - common_prefix(before, unit[0])
        if batches and total + added <= max_tokens:
            batches[-1].append(index)
            total += added
        else:
            batches.append([index])
            total = alone
        before = unit[0]
    return batches


def count_packed(sequences: Sequence[Sequence[int]]) -> int:
    """Tokens that a packed batch of these sequences computes."""
    total = 0
    before: Sequence[int] = ()
    for ids in sorted(sequences, key=tuple):
        total += len(ids) - common_prefix(before, ids)
        before = ids
    return total


def _similar(lengths: Sequence[int]) -> list[list[int]]:
    """Indices by falling length, split where the length falls under 0.8 of the longest."""
    order = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    found: list[list[int]] = []
    for index in order:
        if found and lengths[index] >= MIN_LENGTH_RATIO * lengths[found[-1][0]]:
            found[-1].append(index)
        else:
            found.append([index])
    return found


def _group(members: list[int], places: Sequence[list[int]], device: torch.device) -> AttentionGroup:
    longest = max(len(places[member]) for member in members)
    rows = [places[member] + places[member][-1:] * (longest - len(places[member])) for member in members]
    lengths = [len(places[member]) for member in members]
    return AttentionGroup(torch.tensor(rows, device=device), torch.tensor(lengths, device=device), members)
