"""The processes of the trainer that calls a reward: which one this is, and how they meet."""

import os

from torch import distributed

from cooper_rl.distributed.ranks import ALONE, Ranks


def is_first_process() -> bool:
    """True if this process holds VerifyRM."""
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank() == 0
    return os.environ.get("RANK", "0") == "0"  # set by torchrun and accelerate before any process group


def join_processes() -> Ranks:
    """The trainer's processes, where there are several. Collective: all must call it together."""
    if not (distributed.is_available() and distributed.is_initialized()) or distributed.get_world_size() == 1:
        return ALONE
    # Rows are Python objects, which NCCL does not carry.
    is_on_cpus = distributed.get_backend() == "gloo"
    # `new_group` is collective: all processes get here in their first call together.
    group = distributed.group.WORLD if is_on_cpus else distributed.new_group(backend="gloo")
    return Ranks(distributed.get_rank(), distributed.get_world_size(), group)
