"""What processes share, as one shows it; `tests/stages/train_cooper/test_distributed.py` has the rest."""

import importlib.util

import pytest
import torch

from cooper_rl.config.load import load
from cooper_rl.distributed.ranks import ALONE, Ranks
from cooper_rl.distributed.zero import import_deepspeed
from cooper_rl.errors import ConfigError


@pytest.mark.parametrize("count", [1, 2, 5, 8])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_every_micro_batch_counts_on_one_rank_and_all_ranks_do_equally_many(count: int, size: int) -> None:
    batches = [[number] for number in range(count)]
    dealt = [list(Ranks(rank, size).deal(batches)) for rank in range(size)]
    counting = [one.indices for share in dealt for one in share if one.counts]
    assert sorted(counting) == batches
    assert len({len(share) for share in dealt}) == 1


def test_shares_are_every_nth_thing() -> None:
    assert list(Ranks(1, 3).places(8)) == [1, 4, 7]
    assert list(ALONE.places(3)) == [0, 1, 2]


def test_a_micro_batch_is_no_larger_than_a_ranks_share() -> None:
    """10 + 20 + 30 tokens: two ranks get batches of at most 30, four of at most the longest one's 30."""
    assert Ranks(0, 2).share_tokens([10, 20, 30], 1000) == 30
    assert Ranks(0, 4).share_tokens([10, 20, 30], 1000) == 30
    assert Ranks(0, 2).share_tokens([10, 20, 30], 25) == 25
    assert ALONE.share_tokens([10, 20, 30], 1000) == 1000


def test_one_process_talks_to_nobody() -> None:
    assert ALONE.gather(["a", "b"], 2) == ["a", "b"]
    assert ALONE.first(lambda: 7) == 7
    assert ALONE.sums(1.5, 2.0) == [1.5, 2.0]
    assert ALONE.any(True)
    assert not ALONE.any(False)


@pytest.mark.skipif(importlib.util.find_spec("deepspeed") is not None, reason="DeepSpeed is installed")
def test_a_missing_deepspeed_names_its_extra() -> None:
    with pytest.raises(ConfigError, match=r"--no-build-isolation pip install '\.\[deepspeed\]'"):
        import_deepspeed(torch.device("cpu"))


def test_offload_and_averages_that_cannot_be_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"offload_optimizer needs distributed\.zero_stage=1, 2 or 3"):
        load("laptop", ["distributed.offload_optimizer=true"])
    with pytest.raises(ConfigError, match=r"cooper\.reward\.ema_decay=0\.9 is kept by one process"):
        load("laptop", ["distributed.zero_stage=2", "cooper.reward.ema_decay=0.9"])
