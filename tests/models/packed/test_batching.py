"""Batches under a token budget, and padding."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from cooper_rl.models.packed.batching import pad_right, split_by_tokens


def test_similar_lengths_share_a_batch_under_the_budget() -> None:
    """Budget 12: 9 alone (9 * 2 > 12), 5 and 4 (5 * 2 = 10), then 2, 2 and 1 (2 * 3 = 6).

    Of budget 10, 5 and 4 use all.
    """
    for budget in (12, 10):
        assert split_by_tokens([2, 9, 4, 1, 5, 2], budget) == [[1], [4, 2], [0, 5, 3]]


def test_a_sequence_over_the_budget_is_a_batch_of_its_own() -> None:
    assert split_by_tokens([50, 3], 12) == [[0], [1]]


@given(st.lists(st.integers(1, 40), max_size=30), st.integers(1, 100))
def test_every_index_appears_once_and_padding_stays_in_the_budget(lengths: list[int], budget: int) -> None:
    batches = split_by_tokens(lengths, budget)
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * max(lengths[index] for index in batch) <= budget


def test_padding_stands_right_and_is_masked() -> None:
    batch = pad_right([[7, 8, 9], [5]], pad_id=0, device=torch.device("cpu"))
    assert batch.input_ids.tolist() == [[7, 8, 9], [5, 0, 0]]
    assert batch.attention_mask.tolist() == [[True, True, True], [True, False, False]]
