"""The laptop pipeline for real: compiled, run through kfp.local, resumed, failed, interrupted."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

from cooper_rl.records.files import read_records
from cooper_rl.schema.data import EvalReport
from pipelines.__main__ import main
from pipelines.local.headline import newest_run
from tests.small_run import ROOT, run_pipelines, small_run

ENDLESS = ["--set", "models.tiny.policy.num_updates=1000000"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of a finished run, and what it showed."""
    output = tmp_path_factory.mktemp("run")
    return output, run_pipelines(small_run(output), timeout_seconds=600)


def test_the_run_shows_every_stage_and_ends_with_its_headline(finished: tuple[Path, str]) -> None:
    _, shown = finished
    stages = re.findall(r"^\[ *(\d+)/14\] (\S+)  done in \d+:\d\d$", shown, flags=re.MULTILINE)
    assert [int(number) for number, _ in stages] == list(range(1, 15))
    assert [name for _, name in stages[-2:]] == ["report", "summarise-run"]
    assert re.search(r"accuracy by meaning +0\.\d+ \[.*\] -> \d\.\d+ \[", shown)
    assert re.search(r"VerifyRM accuracy, \d+ examples +\d\.\d+ \[.*\(majority", shown)
    assert "Done in " in shown


def test_the_run_leaves_a_report_and_ordinary_model_folders(finished: tuple[Path, str]) -> None:
    output, shown = finished
    assert "<html" in (output / "report.html").read_text(encoding="utf-8")
    assert (output / "summary.md").read_text(encoding="utf-8").startswith("#")
    models = ROOT / shown.splitlines()[-1].removeprefix("  models   ")
    assert AutoModelForCausalLM.from_pretrained(models / "policy").config.model_type == "qwen2"
    assert AutoModelForSequenceClassification.from_pretrained(models / "verify_rm").config.num_labels == 1


def test_the_second_iteration_goes_on_where_the_first_ended(finished: tuple[Path, str]) -> None:
    output, _ = finished
    run = newest_run(output, "end-to-end")
    assert run is not None
    evaluations = read_records(run / "evaluate-policy-3" / "evaluations", EvalReport)
    assert [evaluation.step for evaluation in evaluations] == [0, 2, 4]
    checkpoint = run / "train-cooper-2" / "checkpoint" / "step-000004"
    metrics = (checkpoint / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["step"] for line in metrics] == [1, 2, 3, 4]


def test_the_same_command_again_runs_only_what_is_never_cached(
    finished: tuple[Path, str], capsys: pytest.CaptureFixture[str]
) -> None:
    output, _ = finished
    assert main(small_run(output)) == 0
    shown = capsys.readouterr().out
    assert re.findall(r"\] (\S+)  kept from an earlier run", shown).count("train-verify-rm") == 1
    ran = re.findall(r"\] (\S+)  done in", shown)
    assert sorted(ran) == [
        "check-settings",
        "evaluate-policy-2",
        "evaluate-policy-3",
        "evaluate-verify-rm",
        "report",
        "summarise-run",
        "train-cooper",
        "train-cooper-2",
    ]
    assert "6 stages kept from an earlier run" in shown


def test_a_failing_stage_is_one_message_and_keeps_what_was_finished(
    finished: tuple[Path, str], capsys: pytest.CaptureFixture[str]
) -> None:
    output, _ = finished
    gone = output / "gone.jsonl"
    assert main(small_run(output, "--set", f'problems.sources=["{gone}"]')) == 1
    shown = capsys.readouterr().out
    assert f"error: collect-problems: {gone}: no such file" in shown
    assert "Traceback" not in shown
    assert "run the same command to go on from there" in shown
    assert (output / "summary.md").read_text(encoding="utf-8").startswith("# Run failed")
    assert "Traceback" in (output / "log.txt").read_text(encoding="utf-8")
    assert (output / "report.html").is_file()


def test_a_wrong_key_is_found_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["local", "--set", "cooper.stepz=2", "--output", str(tmp_path / "run")]) == 2
    assert "cooper.stepz: unknown key; did you mean 'steps'?" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("run_key", ["nightly-[[ScheduledTime]]", "{{$.pipeline_job_uuid}}"])
def test_a_run_key_that_nobody_filled_in_is_refused_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], run_key: str
) -> None:
    assert main(["local", "--param", f"run_key={run_key}", "--output", str(tmp_path / "run")]) == 2
    shown = capsys.readouterr().err
    assert f"storage.run_key={run_key!r} holds a placeholder that Kubeflow did not fill in" in shown
    assert "leave run_key out, and each run is named by its own id" in shown
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_run_that_is_told_to_stop_leaves_no_process_behind(
    tmp_path: Path, number: signal.Signals, status: int
) -> None:
    command = small_run(tmp_path / "run", *ENDLESS)
    process = subprocess.Popen(
        [sys.executable, "-m", "pipelines", *command],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    _wait_until(lambda: _processes(str(tmp_path), "--function_to_execute\0prepare_models"))
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == status, errors
    assert "Traceback" not in errors
    _wait_until(lambda: not _processes(str(tmp_path)))


def test_a_stage_that_is_killed_is_named_and_the_log_is_shown(tmp_path: Path) -> None:
    """The kernel does the same to a process that takes too much memory."""
    process = subprocess.Popen(
        [sys.executable, "-m", "pipelines", *small_run(tmp_path / "run", *ENDLESS)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    _wait_until(lambda: _processes(str(tmp_path), "kfp.dsl.executor_main\0", "prepare_models"))
    for pid in _processes(str(tmp_path), "kfp.dsl.executor_main\0", "prepare_models"):
        os.kill(pid, signal.SIGKILL)
    shown, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "error: prepare-models: the process was killed without a message" in shown
    assert "log.txt" in shown


def _processes(*parts: str) -> list[int]:
    """Running processes whose command line holds every part."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            line = (folder / "cmdline").read_text(encoding="utf-8", errors="replace")
            if all(part in line for part in parts):
                found.append(int(folder.name))
    return found


def _wait_until(condition) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "not within 30 seconds"
        time.sleep(0.1)
