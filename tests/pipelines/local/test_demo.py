"""What `make demo` is made to show, from a whole run of it: 4 minutes on two free cores."""

import re
from pathlib import Path

import pytest

from cooper_rl.records.files import read_records, read_report
from cooper_rl.schema.reports import EvalReport, RunReport
from pipelines.local.folder import run_folders
from tests.small_run import run_pipelines


@pytest.mark.slow
def test_the_demo_shows_a_frozen_verify_rm_hacked_and_cooper_better_than_the_start(tmp_path: Path) -> None:
    shown = run_pipelines(["local", "--profile", "demo", "--output", str(tmp_path)], timeout_seconds=3000)
    (run,) = run_folders(tmp_path, "end-to-end")
    told = read_report(run / "report" / "report", RunReport)
    start = told.accuracy_before.value
    reward = reward_at_the_start(run)
    assert told.frozen_accuracy is not None
    assert told.frozen_reward is not None
    assert told.frozen_accuracy.value < start / 2
    assert told.frozen_reward.value > reward
    assert told.accuracy_after.value > start
    assert told.accuracy_name == "accuracy"

    rows = re.findall(r"(Cooper|frozen VerifyRM) +(\d\.\d{3}) \[.*?\] -> (\d\.\d{3}) \[", shown)
    assert [arm for arm, _, _ in rows] == ["Cooper", "frozen VerifyRM"] * 2
    ends = [told.accuracy_after.value, told.frozen_accuracy.value]
    ends += [reward + told.reward_change.value, told.frozen_reward.value]
    assert [float(end) for _, _, end in rows] == pytest.approx(ends, abs=0.001)
    assert [float(begin) for _, begin, _ in rows] == pytest.approx([start] * 2 + [reward] * 2, abs=0.001)


def reward_at_the_start(run: Path) -> float:
    """The first of the evaluations that all arms share."""
    return read_records(run / "evaluate-policy" / "evaluations", EvalReport)[0].verify_rm_reward.value
