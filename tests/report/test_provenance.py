"""What a page says of where its numbers come from."""

import re
import subprocess
import sys

import pytest

from cooper_rl.config.load import load
from cooper_rl.report.page import settings
from cooper_rl.report.provenance import closest_preset, describe, say_duration
from tests.stages.run_files import make_metrics


def test_the_preset_and_what_was_set_are_found_from_the_settings_alone() -> None:
    assert closest_preset(settings(load("laptop"))) == ("laptop", [])
    changes = ["cooper.group_size=4", "labeling.judge=null"]
    name, found = closest_preset(settings(load("laptop", changes)))
    assert name == "laptop"
    assert sorted(found) == sorted(changes)
    again = settings(load(name, found))
    assert again == settings(load("laptop", changes))


def test_secrets_in_addresses_are_in_none_of_the_rows() -> None:
    judge = 'labeling.judge={server={base_url="http://me:secret@host/v1", model="m"}}'
    rows = dict(describe(settings(load("laptop", [judge]))))
    assert "secret" not in " ".join(rows.values())
    assert "http://***@host/v1" in rows["preset"]


def test_durations_commit_and_machine_are_told() -> None:
    """40 steps of make_metrics: seconds of five phases, rounded."""
    metrics = make_metrics(40)
    total = round(sum(sum(row.seconds.values()) for row in metrics))
    rows = dict(describe(settings(load("laptop")), metrics=metrics, command="make demo"))
    assert rows["command"] == "make demo"
    assert rows["duration of co-training"] == f"{total // 60} min {total % 60} s over 40 steps"
    assert re.match(r"[0-9a-f]{12}|not known: installed as version ", rows["commit"])
    assert "core" in rows["machine of this page"]


@pytest.mark.parametrize(
    ("seconds", "said"), [(44.4, "44 s"), (59.6, "1 min 0 s"), (184.0, "3 min 4 s"), (7384.0, "2 h 3 min")]
)
def test_a_duration_is_said_in_its_two_largest_units(seconds: float, said: str) -> None:
    assert say_duration(seconds) == said


def test_the_command_line_is_known_to_the_processes_that_it_starts() -> None:
    """Remembered by the first process, with its password blanked, and read by a child of it."""
    child = "from cooper_rl.machine.command import known_command; print(known_command())"
    code = (
        "import subprocess, sys; from cooper_rl.machine.command import remember_command; "
        "remember_command('cooper-rl'); "
        f"subprocess.run([sys.executable, '-c', {child!r}], check=True)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "report", "--set", "problems.sources=https://me:secret@host/p"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == "cooper-rl report --set problems.sources=https://***@host/p"
