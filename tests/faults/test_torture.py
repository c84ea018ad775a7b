"""The torture's own bookkeeping: what counts as delivered, and what as an error that names the place."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.torture.__main__ import table
from tests.faults.torture.lives import EXACT, NAMED, Life, Met, Start, is_allowed, is_ended, is_named, places

TRACE = (
    "Traceback (most recent call last):\n  ...\ncooper_rl.errors.DamagedObjectError: /tmp/a/LATEST: is gone\n"
)


def test_only_a_signal_that_came_before_the_end_is_delivered() -> None:
    assert is_ended(Start(-signal.SIGKILL, ""), "kill")
    assert not is_ended(Start(0, ""), "kill")
    assert is_ended(Start(2, "cooper_rl.errors.StoppedError: SIGTERM: saved"), "stop")
    assert not is_ended(Start(0, "SIGTERM came after the last step"), "stop")


def test_a_refusal_must_name_a_damaged_place(tmp_path: Path) -> None:
    harmed = places(tmp_path / "step-000002" / "policy" / "config.json", tmp_path)
    assert harmed == ["step-000002/policy/config.json", "step-000002"]
    assert not is_named(Start(2, TRACE).error, harmed)
    assert is_named(Start(2, TRACE).error, places(tmp_path / "LATEST", tmp_path))
    assert not is_allowed(Start(2, "step-000002 is fine\n" + TRACE), "kill", harmed)
    assert not is_allowed(Start(1, "step-000002"), "kill", harmed)


def test_the_table_counts_kills_that_were_drawn_and_that_were_delivered() -> None:
    lives = [
        Life([Met("kill", True), Met("kill", False)], EXACT),
        Life([Met("kill", True), Met("byte flipped", True)], NAMED),
    ]
    shown = table(lives)
    assert "| kill | 3 | 2 | 1 | 1 | 0 |" in shown
    assert "| byte flipped | 1 | 1 | 0 | 1 | 0 |" in shown
    assert shown.endswith("2 lives: 1 the same, 1 refused with the place, 0 DIFFERENT\n")


@pytest.mark.slow
def test_torture_ends_after_as_many_kills_as_it_is_told() -> None:
    """Half a minute on two cores."""
    command = [sys.executable, "-m", "tests.faults.torture", "--minutes", "5", "--kills", "3"]
    done = subprocess.run(
        command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False, timeout=500
    )
    assert done.returncode == 0, done.stdout + done.stderr
    row = next(line for line in done.stdout.splitlines() if line.startswith("| kill |"))
    assert int(row.split("|")[3]) >= 3
