"""The processes of one co-training, as torchrun starts them; alone, where nobody asks for more."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from cooper_rl.config.infrastructure import DistributedConfig
from cooper_rl.distributed.ranks import ALONE, Ranks, join_ranks, leave_ranks
from cooper_rl.errors import ConfigError
from cooper_rl.machine.device import pick_device


def check_processes(count: int, config: DistributedConfig, *, place: str) -> None:
    """Refuse several processes that would each train a run of their own.

    Raises:
        ConfigError: naming where the number comes from.
    """
    if count > 1 and config.zero_stage == 0:
        raise ConfigError(
            f"{place}: {count} processes, and distributed.zero_stage=0 trains in one; set "
            "distributed.zero_stage=1, 2 or 3, or launch.nodes=1 and launch.gpus_per_node=1 (or 0), or "
            "torchrun --nnodes=1 --nproc-per-node=1"
        )


@contextmanager
def open_ranks(config: DistributedConfig) -> Iterator[Ranks]:
    """Join the processes that torchrun started (RANK, WORLD_SIZE, LOCAL_RANK).

    Raises:
        ConfigError: several processes, and `distributed.zero_stage` is 0.
    """
    rank, size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    check_processes(size, config, place="WORLD_SIZE")
    if config.zero_stage == 0:
        yield ALONE
        return
    local_rank = os.environ.setdefault("LOCAL_RANK", "0")  # DeepSpeed reads it too
    if torch.cuda.is_available():
        # Before `pick_device`, which takes the current one: else all ranks of a machine would share GPU 0.
        torch.cuda.set_device(int(local_rank))
    if rank > 0:
        logging.getLogger("cooper_rl").setLevel(logging.ERROR)  # the first one speaks for all
    ranks = join_ranks(rank, size, device=pick_device(), timeout_seconds=config.timeout_seconds)
    try:
        yield ranks
    except BaseException:
        # Of several, the others may be in another collective call, and NCCL may wait for them to leave too.
        if size == 1:
            leave_ranks()
        raise
    leave_ranks()
