"""What `make demo` is made to show, from a whole run of it: 4 minutes on two free cores."""

import re
from pathlib import Path

import pytest

from cooper_rl.records.files import read_records, read_report
from cooper_rl.schema.reports import EvalReport, RunReport
from pipelines.local.folder import run_folders
from tests.small_run import run_pipelines


@pytest.mark.slow
def test_the_demo_shows_a_plain_verify_rm_hacked_and_cooper_better_than_the_start(tmp_path: Path) -> None:
    shown = run_pipelines(["local", "--profile", "demo", "--output", str(tmp_path)], timeout_seconds=3000)
    (run,) = run_folders(tmp_path, "end-to-end")
    told = read_report(run / "report" / "report", RunReport)
    start = told.accuracy_before.value
    assert told.is_frozen_plain
    assert told.frozen_accuracy is not None
    assert told.frozen_reward_before is not None
    assert told.frozen_reward is not None
    assert told.frozen_accuracy.value < start
    assert told.frozen_reward.value > told.frozen_reward_before.value
    assert told.accuracy_after.value > start
    assert told.accuracy_after.low > told.frozen_accuracy.high
    assert told.accuracy_name == "accuracy"

    rows = re.findall(r"(Cooper|plain VerifyRM, frozen) +(\d\.\d{3}) \[.*?\] -> (\d\.\d{3}) \[", shown)
    assert [arm for arm, _, _ in rows] == ["Cooper", "plain VerifyRM, frozen"] * 2
    reward = read_records(run / "evaluate-policy-4" / "evaluations", EvalReport)[0].verify_rm_reward.value
    ends = [told.accuracy_after.value, told.frozen_accuracy.value]
    ends += [reward + told.reward_change.value, told.frozen_reward.value]
    assert [float(end) for _, _, end in rows] == pytest.approx(ends, abs=0.001)
    begins = [start, start, reward, told.frozen_reward_before.value]
    assert [float(begin) for _, begin, _ in rows] == pytest.approx(begins, abs=0.001)
