"""What a process does once for all children that it will fork."""

import gc

from cooper_rl.checkpoints.versions import SOURCES
from cooper_rl.machine.sources import source_digest


def prepare_for_forks() -> None:
    """Read our own sources for their digests, and take all objects so far out of the garbage collector.

    Each child would parse a hundred modules anew, and its collector would copy the memory that it shares.
    """
    for modules in SOURCES.values():
        source_digest(*modules)
    gc.collect()
    gc.freeze()
