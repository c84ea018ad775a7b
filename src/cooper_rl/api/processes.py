"""The processes of the trainer that calls a reward: which one this is, and their rows together."""

import os
from collections.abc import Callable

from torch import distributed

from cooper_rl.api.rows import Row
from cooper_rl.distributed.ranks import ALONE, Ranks
from cooper_rl.errors import CooperError, LaunchError


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


def gather_rows(ranks: Ranks, read: Callable[[], list[Row]]) -> list[list[Row]]:
    """The rows of every process, in the order of the processes. Collective.

    Raises:
        CooperError: what `read` raised on some process is raised on all, or they would wait for it. An error
            that is no CooperError is a LaunchError on the others.
    """
    found: list[Row] | CooperError
    own: Exception | None = None
    try:
        found = read()
    except CooperError as error:
        found = error
    # Broad on purpose: whatever went wrong here, the exchange below must still be reached.
    except Exception as error:
        own = error
        found = LaunchError(
            f"process {ranks.rank} of {ranks.size} failed: {type(error).__name__}: {error}; its own log says "
            "where"
        )
    parts: list[list[Row]] = []
    told = ranks.every(found)
    if own is not None:
        raise own
    for part in told:
        if isinstance(part, CooperError):
            raise part
        parts.append(part)
    return parts
