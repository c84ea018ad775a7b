"""Torch's use of the CPU for a model: threads, memory that was freed, kernels that were compiled."""

import ctypes
import os
import sys
from functools import cache

import torch

from cooper_rl.machine.cores import usable_cores

SMALL_MODEL_PARAMETERS = 10_000_000
KEPT_BYTES = 2**30
MAPPED_BYTES = 2**25
"""Larger tensors go back to the system all the same; older releases of glibc take no higher value."""
KEPT_KERNELS = 256
"""More than a pass over one batch takes."""
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3
"""The constant in glibc's malloc.h."""


def limit_threads(model: torch.nn.Module) -> None:
    """One thread for the process of a model under 10M parameters on the CPU; of others, one for each core.

    So also for a larger model beside it, which nobody trains on a CPU. The small one's operations are so
    short that threads spend their time waking and waiting for each other: on two busy cores, generation with
    a 1M-parameter model took 2.7 s with one thread and 24 s with two.
    """
    parameters = list(model.parameters())
    is_small = sum(weight.numel() for weight in parameters) < SMALL_MODEL_PARAMETERS
    if is_small and all(weight.device.type == "cpu" for weight in parameters):
        torch.set_num_threads(1)
    elif torch.get_num_threads() > usable_cores():
        torch.set_num_threads(usable_cores())


@cache
def keep_freed_memory() -> None:
    """Let the C library keep the memory that tensors gave back, instead of returning it to the system.

    A training step allocates the same megabytes again and again; as pages that the system has to clear each
    time, they cost a tenth of its time. The free end of the heap stays, up to `KEPT_BYTES`. Without glibc:
    nothing.
    """
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        # Above it malloc maps pages of their own, which go back to the system on free. Setting it also ends
        # glibc's own moving of the bound.
        mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES)
        mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)
        # The heap grows by 64 MiB at a time, so that a step's tensors do not each move its end.
        mallopt(M_TOP_PAD, KEPT_BYTES // 16)


def limit_kept_kernels() -> None:
    """Keep fewer of the kernels that oneDNN compiles for every shape of a bf16 product.

    Packed batches hardly ever have the shape of an earlier one. Two caches of 1,024 kernels, of about .4 MB
    each, then fill with what is not used again; in between them the heap goes to pieces, and a training
    process of 1.0 GB has 2.2 GB after forty steps. Read by the libraries at their first product.
    """
    for name in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):  # oneDNN's; torch's own
        os.environ.setdefault(name, str(KEPT_KERNELS))
