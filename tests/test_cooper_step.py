"""The benchmark of a whole step runs; TRL's side of it needs TRL."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SIZES = ["--hidden=64", "--layers=1", "--max-new-tokens=4", "--fixed", "--repeats=1", "--warm-ups=0"]


@pytest.mark.slow
def test_sides_take_their_turns_in_processes_of_their_own() -> None:
    sides = ["TRL", "expert, no fallback"] if importlib.util.find_spec("trl") else []
    command = [sys.executable, "-m", "benchmarks.cooper_step", *SIZES, "--sides", *sides]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=True)
    shown = done.stdout
    for side in ("ours", *sides):
        assert re.search(rf"^round 1  {side} +512 tokens  step \d+\.\d\d, rollout", shown, re.MULTILINE)
    assert shown.count("(bar 2.8x)") == shown.count("(bar 2.4x)") == len(sides) // 2
    # Policy and reference policy: 128 rollouts of 4 tokens each, and of TRL's fallback the prompts too.
    heads = {
        side: int(count)
        for side, count in re.findall(r"^median   (.+?)  .*, head (\d+)$", shown, re.MULTILINE)
    }
    assert heads["ours"] == heads.get("expert, no fallback", heads["ours"]) == 2 * 512
    assert heads.get("TRL", 10_000) > 9_000
