"""Sequences of token ids laid end to end, without padding, every shared beginning once (rows 5 and 9).

Completions of one problem begin with the same prompt, or with the same question and reference answer; a
causal model computes the same for them, so they are kept once. Attention alone needs rows: `groups` says
which tokens make up which sequence, and which of them ask. `models/packed/forward.py` walks a batch through
the model.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from cooper_rl.models.packed.varlen import Bounds, make_bounds

MIN_LENGTH_RATIO = 0.8
"""Lowest ratio of each sequence of an attention group to its first: the shorter's length over the longer's,
in queries and in keys."""
Places = NDArray[np.int64]
"""Of a sequence's tokens in the batch. Arrays, since thousands of lists are slow to pad."""
MAX_ROWS = 2
"""Rows of attention for a token of a batch's budget: sequences are whole there, shared beginnings too."""


@dataclass(frozen=True)
class AttentionGroup:
    """n sequences of similar length, right-padded to L, whose last tokens ask, right-padded to Q."""

    tokens: torch.Tensor
    """(n, L) int64: place of every token in the batch; padding repeats the sequence's last token."""
    queries: torch.Tensor
    """(n, Q) int64: place of every token that asks, padded likewise."""
    mask: torch.Tensor | None
    """(n, Q, L) bool, True = the query looks there; None: the queries are the tokens, and it is causal."""
    lengths: torch.Tensor
    """(n,) int64."""
    members: list[int]
    """Indices of the group's sequences among those given."""


class WholeRows(NamedTuple):
    """S sequences end to end, each with the tokens that it shares: R rows."""

    tokens: torch.Tensor
    """(R,) int64: place of every row's token in the batch."""
    bounds: Bounds


@dataclass(frozen=True)
class PackedBatch:
    """N different tokens of S sequences."""

    token_ids: torch.Tensor
    """(N,) int64."""
    positions: torch.Tensor
    """(N,) int64, from 0 in every sequence."""
    places: list[Places]
    """The places of each given sequence's tokens."""
    groups: list[AttentionGroup]
    """Every sequence is in exactly one; none where there are whole rows."""
    whole: WholeRows | None
    """In place of groups, where attention takes sequences of any length in one call."""
    sources: torch.Tensor
    """(N,) int64: where every token first stands in the concatenation of the groups' flattened queries, or in
    the whole rows."""
    last_tokens: torch.Tensor
    """(S,) int64: the last token of each sequence, groups in order."""
    order: list[int]
    """(S,) which of the given sequences `last_tokens` speaks of."""


def pack(sequences: Sequence[Sequence[int]], *, device: torch.device, has_groups: bool = True) -> PackedBatch:
    """Lay sequences end to end; a beginning that several share is kept once.

    None may be empty. On a CPU a shared beginning also asks once; a GPU's fastest attention has no such rows.
    Without groups the batch is for `attend_varlen`.
    """
    token_ids: list[int] = []
    positions: list[int] = []
    before_places = np.empty(0, dtype=np.int64)
    places = [before_places] * len(sequences)
    starts = [0] * len(sequences)
    before: Sequence[int] = ()
    # After sorting, the sequence with the longest shared prefix is the previous one.
    for index in sorted(range(len(sequences)), key=lambda i: tuple(sequences[i])):
        ids = sequences[index]
        shared = common_prefix(before, ids)
        start = len(token_ids)
        token_ids += ids[shared:]
        positions += range(shared, len(ids))
        # Queries with an offset need an explicit mask, with which a GPU falls back from its flash kernels:
        # computing the beginning's queries again costs less there.
        if device.type == "cpu" and has_groups:
            starts[index] = shared
        places[index] = np.concatenate([before_places[:shared], np.arange(start, len(token_ids))])
        before, before_places = ids, places[index]
    ids, own = torch.tensor(token_ids, device=device), torch.tensor(positions, device=device)
    if not has_groups:
        whole = _whole_rows(places, device)
        return PackedBatch(
            token_ids=ids,
            positions=own,
            places=places,
            groups=[],
            whole=whole,
            sources=_first_places(whole.tokens, len(ids)),
            last_tokens=whole.tokens[whole.bounds.offsets[1:] - 1],
            order=list(range(len(places))),
        )
    groups = [_group(members, places, starts, device) for members in _similar(places, starts)]
    return PackedBatch(
        token_ids=ids,
        positions=own,
        places=places,
        groups=groups,
        whole=None,
        sources=_first_places(torch.cat([group.queries.flatten() for group in groups]), len(ids)),
        last_tokens=torch.cat([group.tokens[:, -1] for group in groups]),
        order=[member for group in groups for member in group.members],
    )


def _whole_rows(places: Sequence[Places], device: torch.device) -> WholeRows:
    tokens = torch.as_tensor(np.concatenate(places)).to(device)
    return WholeRows(tokens, make_bounds([len(row) for row in places], device=device))


def _first_places(rows: torch.Tensor, num_tokens: int) -> torch.Tensor:
    """(N,) where every token first stands among the rows."""
    found = torch.full((num_tokens,), len(rows), device=rows.device)
    # The least of equal places; plain assignment leaves any of them on a GPU, padding's too.
    return found.scatter_reduce_(0, rows, torch.arange(len(rows), device=rows.device), "amin")


def common_prefix(first: Sequence[int], second: Sequence[int]) -> int:
    """The number of tokens that two sequences begin with alike; one token of the second is always left."""
    # Every sequence keeps a token of its own: VerifyRM's logit is read there, and `_rectangle` cannot pad an
    # empty row.
    low, high = 0, min(len(first), len(second) - 1)
    # Bisection over slices: comparing lists runs in C, a loop over tokens does not.
    while low < high:
        middle = (low + high + 1) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def split_packed(
    units: Sequence[Sequence[Sequence[int]]], max_tokens: int, *, max_rows: int = MAX_ROWS
) -> list[list[int]]:
    """Indices of units (one sequence, or a pair that must stay together) in packed batches under a budget.

    Units that begin alike come together. The count of a batch is what it computes, shared beginnings once, or
    its sequences' whole lengths over `max_rows`, where that is more: short completions of one long prompt. A
    unit over the budget is a batch of its own; every index appears exactly once.
    """
    batches: list[list[int]] = []
    total = rows = 0
    before: Sequence[int] = ()
    # Sorted as `pack` will sort, so that the beginnings that count once here are those that are kept once
    # there.
    for index in sorted(range(len(units)), key=lambda i: tuple(units[i][0])):
        unit = units[index]
        alone = count_packed(unit)
        added = alone - common_prefix(before, unit[0])
        whole = sum(map(len, unit))
        # Two bounds: what is computed, and the rows of attention, in which a shared prompt stands once for
        # every completion.
        if batches and total + added <= max_tokens and rows + whole <= max_rows * max_tokens:
            batches[-1].append(index)
            total, rows = total + added, rows + whole
        else:
            batches.append([index])
            total, rows = alone, whole
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


def _similar(places: Sequence[Places], starts: Sequence[int]) -> list[list[int]]:
    """Indices of sequences with similar numbers of queries and of keys, most queries first."""

    def is_similar(first: int, second: int) -> bool:
        return min(first, second) >= MIN_LENGTH_RATIO * max(first, second)

    alike: dict[tuple[int, int], list[int]] = defaultdict(list)
    for index, (row, start) in enumerate(zip(places, starts, strict=True)):
        alike[len(row) - start, len(row)].append(index)
    found: list[tuple[int, int, list[int]]] = []
    # A group is padded to its longest: with that one first, a shorter sequence either fits or begins a
    # group.
    for queries, keys in sorted(alike, reverse=True):
        for most_queries, first_keys, members in found:
            if is_similar(most_queries, queries) and is_similar(first_keys, keys):
                members += alike[queries, keys]
                break
        else:
            found.append((queries, keys, alike[queries, keys]))
    return [members for _, _, members in found]


def _group(
    members: list[int], places: Sequence[Places], starts: Sequence[int], device: torch.device
) -> AttentionGroup:
    rows = [places[member] for member in members]
    first: Places = np.array([starts[member] for member in members])
    tokens = _rectangle(rows)
    queries = _rectangle([row[start:] for row, start in zip(rows, first, strict=True)])
    mask = None
    if first.any():
        asking = torch.arange(queries.shape[1]) + torch.as_tensor(first)[:, None]
        mask = (torch.arange(tokens.shape[1]) <= asking[:, :, None]).to(device)
    lengths = torch.tensor([len(row) for row in rows], device=device)
    return AttentionGroup(tokens.to(device), queries.to(device), mask, lengths, members)


def _rectangle(rows: Sequence[Places]) -> torch.Tensor:
    """Rows padded with their last entries."""
    lengths: Places = np.array([len(row) for row in rows])
    ends = lengths.cumsum()
    # With a real place, so that gathering stays within bounds; no query that counts looks there.
    columns = np.minimum(np.arange(max(map(len, rows))), lengths[:, None] - 1)
    return torch.as_tensor(np.concatenate(rows)[(ends - lengths)[:, None] + columns])
