"""Packing: every token once, shared beginnings once, every sequence whole again in its rows."""

import random

import pytest
import torch

from cooper_rl.models.packed.packing import MIN_LENGTH_RATIO, common_prefix, count_packed, pack, split_packed

CPU = torch.device("cpu")


def test_a_shared_beginning_is_kept_once() -> None:
    """[1 2 3] and [1 2 4 5] share two tokens: 5 of 7 are computed; [9] stands alone."""
    batch = pack([[1, 2, 3], [9], [1, 2, 4, 5]], device=CPU)
    assert batch.token_ids.tolist() == [1, 2, 3, 4, 5, 9]
    assert batch.positions.tolist() == [0, 1, 2, 2, 3, 0]
    assert count_packed([[1, 2, 3], [9], [1, 2, 4, 5]]) == 6


def test_equal_sequences_keep_their_last_token_apart() -> None:
    """The logit is read there, so that each sequence has one of its own."""
    assert common_prefix([1, 2, 3], [1, 2, 3]) == 2
    assert pack([[1, 2], [1, 2]], device=CPU).token_ids.tolist() == [1, 2, 2]


def test_every_sequence_can_be_read_back_from_its_rows() -> None:
    rng = random.Random(0)
    sequences = [[rng.randrange(3) for _ in range(rng.randrange(1, 12))] for _ in range(40)]
    batch = pack(sequences, device=CPU)
    found = {}
    for group in batch.groups:
        for member, row, length in zip(group.members, group.tokens, group.lengths.tolist(), strict=True):
            found[member] = batch.token_ids[row[:length]].tolist()
    assert [found[index] for index in range(40)] == sequences
    ends = dict(zip(batch.order, batch.token_ids[batch.last_tokens].tolist(), strict=True))
    assert [ends[index] for index in range(40)] == [ids[-1] for ids in sequences]
    assert len(batch.token_ids) == count_packed(sequences)


def test_sources_lead_from_the_queries_back_to_the_tokens() -> None:
    batch = pack([[1, 2, 3], [1, 2, 4, 5], [7]], device=CPU)
    queries = torch.cat([batch.token_ids[group.queries].flatten() for group in batch.groups])
    assert queries[batch.sources].tolist() == batch.token_ids.tolist()


def test_a_shared_beginning_asks_once_and_its_queries_look_back_at_all_before_them() -> None:
    """[1 2 4 5] asks with 4 and 5 only: they look at 3 and 4 tokens."""
    with_whole, with_end = pack([[1, 2, 3], [1, 2, 4, 5]], device=CPU).groups
    assert (with_whole.queries.tolist(), with_whole.mask) == ([[0, 1, 2]], None)
    assert (with_end.queries.tolist(), with_end.tokens.tolist()) == ([[3, 4]], [[0, 1, 3, 4]])
    assert with_end.mask is not None
    assert with_end.mask.tolist() == [[[True, True, True, False], [True, True, True, True]]]


def test_the_sequences_of_a_group_are_similar_in_queries_and_in_keys() -> None:
    """Each against the group's first; endings of 10 to 100 tokens after beginnings of 0 to 100."""
    rng = random.Random(1)
    beginnings = [list(range(length)) for length in (0, 10, 30, 100)]
    endings = [rng.choices(range(1000), k=rng.randrange(10, 100)) for _ in range(60)]
    batch = pack([rng.choice(beginnings) + ending for ending in endings], device=CPU)
    assert max(len(group.members) for group in batch.groups) > 1
    for group in batch.groups:
        num_queries = [len(row.unique()) for row in group.queries]
        for sizes in (num_queries, group.lengths.tolist()):
            assert all(min(size, sizes[0]) >= MIN_LENGTH_RATIO * max(size, sizes[0]) for size in sizes)


def test_on_a_gpu_every_sequence_asks_with_all_of_its_tokens() -> None:
    (group,) = pack([[1, 2, 3, 4, 5], [1, 2, 6, 7, 8]], device=torch.device("meta")).groups
    assert group.queries.shape == group.tokens.shape == (2, 5)
    assert group.mask is None


def test_batches_stay_under_the_budget_and_keep_relatives_together() -> None:
    """Two families of three that share 8 of 10 tokens: 14 computed tokens each."""
    units = [[[family] * 8 + [rest, rest]] for rest in range(10, 13) for family in (1, 2)]
    batches = split_packed(units, 15)
    assert [sorted(batch) for batch in batches] == [[0, 2, 4], [1, 3, 5]]
    assert split_packed(units, 1) == [[0], [2], [4], [1], [3], [5]]


def test_strangers_share_a_batch_where_all_their_tokens_fit() -> None:
    units = [[[1, 2, 3]], [[4, 5, 6]], [[7, 8, 9]]]
    assert split_packed(units, 5) == [[0], [1], [2]]
    assert split_packed(units, 6) == [[0, 1], [2]]


def test_short_endings_of_a_long_beginning_are_divided_by_the_rows_of_their_attention() -> None:
    """Eight of 10 tokens, 9 of them shared: 17 tokens are computed, and 80 rows asked of a budget of 20."""
    units = [[[1] * 9 + [ending]] for ending in range(8)]
    assert split_packed(units, 20) == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_the_two_halves_of_a_pair_share_a_batch() -> None:
    units = [[[1, 2, 3], [1, 2, 4]], [[5, 6], [5, 7]]]
    assert split_packed(units, 4) == [[0], [1]]
    assert split_packed(units, 7) == [[0, 1]]


@pytest.mark.parametrize(
    ("first", "second", "shared"),
    [([], [1], 0), ([1, 2], [1, 3], 1), ([1], [1], 0), ([1, 2, 3, 4, 5], [1, 3, 4, 5, 6], 1)],
)
def test_common_prefix_leaves_a_token(first, second, shared) -> None:
    assert common_prefix(first, second) == shared
