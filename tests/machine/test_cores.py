"""The cores that a container may use, from the files that the kernel shows it."""

import os
from pathlib import Path

import pytest

from cooper_rl.machine.cores import usable_cores

CORES = len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, CORES),
        ({"cpu.max": "max 100000\n"}, CORES),
        ({"cpu.max": "100000 100000\n"}, 1),
        ({"cpu.max": "50000 100000\n"}, 1),
        ({"cpu.max": "150000 100000\n"}, min(CORES, 2)),
        ({"cpu.max": f"{CORES + 9}00000 100000\n"}, CORES),
        ({"cpu.max": "nonsense\n"}, CORES),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, CORES),
        ({"cpu/cpu.cfs_quota_us": "20000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 1),
    ],
)
def test_a_containers_limit_counts_where_it_is_less_than_the_cores(
    tmp_path: Path, files: dict[str, str], expected: int
) -> None:
    """Half a core counts as one."""
    (tmp_path / "cpu").mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert usable_cores(tmp_path) == expected
