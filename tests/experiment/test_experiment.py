"""`cooper-rl experiment` as a person runs it, with models that learn nothing in two steps."""

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cooper_rl.__main__ import main
from cooper_rl.comparison.page import findings
from cooper_rl.comparison.summary import ExperimentReport
from cooper_rl.records.files import read_report
from cooper_rl.report.live import live_page
from tests.small_run import EXPERIMENT
from tests.stages.test_report import assert_nothing_but_our_script

pytestmark = pytest.mark.slow


def run(output: Path, *more: str) -> int:
    overrides = [part for override in EXPERIMENT for part in ("--set", override)]
    return main(["experiment", "--preset", "laptop", *overrides, "--output", str(output), *more])


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("experiment") / "output"
    assert run(folder, "--arms", "rule,cooper", "--ablate", "rule_gated", "--seeds", "0") == 0
    return folder


def test_every_arm_is_trained_from_one_start_and_reported(output: Path) -> None:
    report = read_report(output / "report.json", ExperimentReport)
    assert [arm.arm for arm in report.arms] == ["rule", "cooper", "rule_gated"]
    assert len({run.start.model_dump_json() for run in report.runs}) == 1
    for each in report.runs:
        assert each.curves["eval/judge_accuracy"].steps == [0, 1, 2]
        assert each.start.step == 0
        assert each.end.step == 2
        assert (found := each.end.judge_accuracy) is not None
        assert each.curves["eval/judge_accuracy"].values[-1] == pytest.approx(found.value)
    assert report.arms[1].against.keys() == {"rule", "rule_gated"}
    assert [arm.num_alarmed for arm in report.arms] == [None, 0, 0]
    # The models of this test are never right, so no problem has a positive, and no judge is asked for pairs.
    assert [arm.judge_calls for arm in report.arms] == [0, 0, 0]


def test_the_page_is_whole_and_loads_nothing(output: Path) -> None:
    page = (output / "report.html").read_text(encoding="utf-8")
    assert page.rstrip().endswith("</html>")
    assert_nothing_but_our_script(page)
    assert page.count("<svg") == page.count("<figure") > 4
    report = read_report(output / "report.json", ExperimentReport)
    is_any_right = any(run.end.judge_accuracy and run.end.judge_accuracy.value for run in report.runs)
    assert len(findings(report)) >= 4 + is_any_right  # of which one is the rule's recall
    assert "accuracy ends more than 10 points below" in page
    assert "Ablations" in page
    assert "<th>judge calls</th>" in page
    for title in (
        "KL against accuracy",
        "KL against VerifyRM reward",
        "Groups of one verdict",
        "Entropy",
        "Completion length",
    ):
        assert f"<h3>{title}</h3>" in page
    for key in ("Accuracy", "VerifyRM reward"):
        assert f'"title":"{key}: rule_gated"' in page
    assert "The same problems, before and after" in page
    assert "<h3>after, cooper</h3>" in page
    assert "<h3>after, rule</h3>" in page
    assert 'data-when="end, rule"' in page
    assert "# Cooper experiment, 2 steps" in page
    assert all(f"| {arm} |" in page for arm in ("rule", "cooper", "rule_gated"))
    assert "The monitor stayed silent in all runs of cooper." in page
    assert "runs of rule." not in page  # whose reward is not VerifyRM's


def test_the_page_so_far_shows_every_arm_in_the_same_figures(output: Path) -> None:
    page = live_page(output)
    assert page is not None
    for arm in ("rule", "cooper", "rule_gated"):
        assert f'<th scope="row">{arm}/seed-0/train_cooper_1</th><td>2 of 2</td>' in page
        assert f'"label":"{arm}: entropy"' in page
    assert "Evaluations, cooper/seed-0/evaluate_policy_1" in page


def test_started_again_it_trains_nothing_and_a_new_seed_only_itself(output: Path) -> None:
    done = output / "cooper" / "seed-0" / "train_cooper_1" / "report.json"
    before = done.stat().st_mtime_ns
    assert run(output, "--arms", "cooper", "--seeds", "0,1") == 0
    assert done.stat().st_mtime_ns == before
    report = read_report(output / "report.json", ExperimentReport)
    assert [(each.arm, each.seed) for each in report.runs] == [("cooper", 0), ("cooper", 1)]
    first, second = (
        json.loads((output / "cooper" / f"seed-{seed}" / "train_cooper_1" / "report.json").read_text())
        for seed in (0, 1)
    )
    assert first["verify_rm_reward"] != second["verify_rm_reward"]


def test_another_configuration_in_the_same_folder_is_refused(
    output: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(output, "--set", "cooper.policy.lr=0.5") == 2
    shown = capsys.readouterr().err
    assert "another experiment is in this folder (cooper.policy.lr: there 0.0002, here 0.5)" in shown


def test_a_folder_of_a_version_without_a_key_goes_on(output: Path) -> None:
    claim = output / "experiment.json"
    known = json.loads(claim.read_text())
    del known["preset"]["cooper"]["reward"]["num_audited_rollouts"]
    claim.write_text(json.dumps(known))
    assert run(output) == 0


def test_a_damaged_claim_of_the_folder_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "experiment.json").write_text("{")
    assert run(tmp_path) == 2
    assert "experiment.json: cannot be read (Expecting property name" in capsys.readouterr().err


def test_a_page_of_something_else_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "report.html").write_text("precious")
    assert run(tmp_path) == 2
    assert "report.html: would be overwritten, and no run has used this folder" in capsys.readouterr().err
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("report.html", "precious")]


def test_a_failing_arm_is_one_message_that_names_its_log(
    output: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first arm's checkpoint folder is a file, which no run can use."""
    (tmp_path / "rule" / "seed-0" / "train_cooper_1").mkdir(parents=True)
    (tmp_path / "rule" / "seed-0" / "train_cooper_1" / "checkpoint").write_text("in the way")
    (tmp_path / "start").symlink_to(output / "start")
    assert run(tmp_path, "--arms", "rule", "--seeds", "0") == 2
    shown = capsys.readouterr().err
    assert "rule/seed-0" in shown
    assert "log.txt" in shown


def test_arms_start_from_models_of_ones_own(output: Path, tmp_path: Path) -> None:
    """Named by their folders, not made for the run."""
    made = output / "start" / "prepare_models" / "models"
    own = ["models.tiny=null", f"models.policy={made / 'policy'}", f"models.backbone={made / 'backbone'}"]
    overrides = [part for value in own for part in ("--set", value)]
    assert run(tmp_path / "own", *overrides, "--arms", "rule", "--seeds", "0") == 0
    assert (tmp_path / "own" / "report.html").is_file()


def test_a_preset_without_a_judge_of_meaning_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, "--set", "evaluation.judge=null") == 2
    assert "a judge that evaluates all arms; set evaluation.judge" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_ends_the_workers_too(output: Path, tmp_path: Path, number: signal.Signals) -> None:
    copied = tmp_path / "output"
    shutil.copytree(output / "start", copied / "start")
    overrides = [part for override in [*EXPERIMENT, "experiment.steps=10000"] for part in ("--set", override)]
    command = [sys.executable, "-m", "cooper_rl", "experiment", "--preset", "laptop", *overrides]
    process = subprocess.Popen([*command, "--seeds", "7", "--output", copied], start_new_session=True)
    logs = [copied / arm / "seed-7" / "log.txt" for arm in ("rule", "frozen")]
    deadline = time.monotonic() + 400
    while not all(log.is_file() and "/10000 step=" in log.read_text() for log in logs):
        assert process.poll() is None, "it ended before both workers trained"
        assert time.monotonic() < deadline, "no worker trains"
        time.sleep(0.2)
    process.send_signal(number)  # to the parent alone
    assert process.wait(60) != 0
    while _session(process.pid):
        assert time.monotonic() < deadline, f"still there: {_session(process.pid)}"
        time.sleep(0.2)
    assert (copied / "rule" / "seed-7" / "train_cooper_1" / "checkpoint" / "LATEST").is_file()


def _session(leader: int) -> list[int]:
    """Processes of a session that still run."""
    found = subprocess.run(["ps", "-o", "pid=,stat=", "-s", str(leader)], capture_output=True, text=True)
    return [int(line.split()[0]) for line in found.stdout.splitlines() if "Z" not in line.split()[1]]
