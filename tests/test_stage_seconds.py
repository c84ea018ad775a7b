"""The clock of a local run's stages, on processes that are named as forked stages are."""

import os
import re
import subprocess
import sys
import time

import psutil

from benchmarks.stage_seconds import Stages

CHILD = "import time\nwhile time.process_time() < 0.5: pass\ntime.sleep(60)"
STAGE = f"""
import subprocess, sys, time
open("/proc/self/comm", "w").write("train_cooper")
while time.process_time() < 1: pass
subprocess.run([sys.executable, "-c", {CHILD!r}])
"""


def test_a_stage_is_charged_for_what_it_and_its_children_used() -> None:
    """One second and a half: one of the stage's own, half a one of the process that it started."""
    process = subprocess.Popen([sys.executable, "-c", STAGE], start_new_session=True)
    stages = Stages()
    try:
        deadline = time.monotonic() + 60
        used = 0.0
        while used < 1.5 and time.monotonic() < deadline:
            time.sleep(0.05)
            stages.look(psutil.Process())
            found = re.search(r"^\| train_cooper \| (\d+\.\d) \| \d+\.\d \|$", stages.table(), re.MULTILINE)
            used = float(found[1]) if found else 0.0
        assert 1.5 <= used < 2.5
        assert "train_cooper 2" not in stages.table()
    finally:
        os.killpg(process.pid, 9)
        process.wait()
