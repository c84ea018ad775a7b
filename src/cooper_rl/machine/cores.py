"""The cores that this process may use: those of its container, not of the node."""

import math
import os
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")
"""The folder in which a container sees its own limits."""


def usable_cores(cgroup: Path = CGROUP) -> int:
    """The cores of the process's affinity, or of its container's CPU limit where that is less; at least one.

    Kubernetes makes a CPU limit a quota of time, which Python and torch do not look at: they start a worker
    or a thread for every core of the node, and the kernel holds all of them up when the quota is used.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    # Rounded up: half a core still needs one worker.
    return max(1, math.ceil(min(cores, _read_quota(cgroup))))


def _read_quota(cgroup: Path) -> float:
    """CPU seconds a second; infinity without a limit."""
    for names in (["cpu.max"], ["cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"]):  # version 2, version 1
        try:
            quota, period = " ".join((cgroup / name).read_text() for name in names).split()
            return math.inf if quota in ("max", "-1") else int(quota) / int(period)
        except (OSError, ValueError):
            continue
    return math.inf
