"""Why tasks failed, from the task to the summary, with KFP's executor and a store in a folder or on S3."""

import json
import logging
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cooper_rl.cluster.failures import FOLDER, POD_NAME, failures_of, in_words, keep_failure
from cooper_rl.cluster.task import task
from cooper_rl.config.infrastructure import StorageConfig
from cooper_rl.errors import DataError
from cooper_rl.schema.runs import TaskFailure
from cooper_rl.storage.open import open_store
from tests.small_run import ROOT
from tests.stand_ins.fixtures import storage_config

ARGUMENTS = ["executor_main", "--function_to_execute", "train_cooper"]


@pytest.fixture(params=["folder", "s3"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> StorageConfig:
    if request.param == "folder":
        return StorageConfig(uri=str(tmp_path / "store"))
    return storage_config(request.getfixturevalue("s3_server").endpoint, request.getfixturevalue("bucket"))


def test_what_tasks_of_a_run_leave_is_read_in_order_and_that_of_other_runs_is_not(
    storage: StorageConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    for pod, message in [
        ("end-to-end-abcde-system-container-impl-1", "first"),
        ("end-to-end-abcde-system-container-impl-2", "second"),
        ("end-to-end-other-system-container-impl-3", "of another run"),
        ("end-to-end-abcde-system-container-impl-1", "made again under its name"),
    ]:
        monkeypatch.setenv(POD_NAME, pod)
        keep_failure(storage, message, arguments=ARGUMENTS)
    found = failures_of(storage, "end-to-end-abcde")
    assert [(each.task, each.message) for each in found] == [
        ("train-cooper", "second"),
        ("train-cooper", "made again under its name"),
    ]
    assert datetime.now(UTC) - found[0].failed_at < timedelta(minutes=1)
    assert failures_of(storage, "verify-rm-abcde") == []


def test_outside_a_cluster_and_without_an_address_nothing_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = StorageConfig(uri=str(tmp_path / "store"))
    monkeypatch.delenv(POD_NAME, raising=False)
    keep_failure(storage, "lost", arguments=ARGUMENTS)
    assert not (tmp_path / "store").exists()
    monkeypatch.setenv(POD_NAME, "end-to-end-abcde-1")
    keep_failure(StorageConfig(), "lost", arguments=ARGUMENTS)
    assert failures_of(StorageConfig(), "end-to-end-abcde") == []


def test_an_object_that_is_no_failure_is_left_out_and_left_alone(tmp_path: Path) -> None:
    storage = StorageConfig(uri=str(tmp_path))
    open_store(storage, tmp_path / FOLDER).write("run-1.json", b"{}", replaces=None)
    assert failures_of(storage, "run") == []
    assert (tmp_path / FOLDER / "run-1.json").read_bytes() == b"{}"


def test_a_store_that_is_away_leaves_the_tasks_own_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Port 1 refuses; with its own 300 seconds of retries the task would hang on to its GPU."""
    monkeypatch.setenv(POD_NAME, "end-to-end-abcde-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "access")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    place = ["storage.uri=s3://bucket/runs", "storage.endpoint=http://127.0.0.1:1"]
    with (
        caplog.at_level(logging.WARNING),
        pytest.raises(DataError, match=r"^rows\.jsonl: empty$"),
        task("laptop", place, run_id="0b1e-22"),
    ):
        raise DataError("rows.jsonl: empty")
    assert "the run's summary will not say why this task failed: " in caplog.text
    assert "http://127.0.0.1:1" in caplog.text


def test_a_message_that_came_again_is_one_line_with_its_tries() -> None:
    begin = datetime(2026, 11, 25, tzinfo=UTC)
    said = [
        ("train-cooper", "out of memory"),
        ("train-cooper", "no route"),
        ("train-cooper", "out of memory"),
    ]
    failures = [
        TaskFailure(task=name, message=message, failed_at=begin + timedelta(minutes=minute))
        for minute, (name, message) in enumerate(said)
    ]
    assert in_words(failures) == ["train-cooper: no route", "train-cooper: out of memory (2 tries)"]
    many = [TaskFailure(task="a", message=str(number), failed_at=begin) for number in range(12)]
    assert in_words(many) == [f"a: {number}" for number in range(2, 12)]


def execute(stage: str, folder: Path, *, pod: str, **given: object) -> subprocess.CompletedProcess[str]:
    """A component as its pod runs it: KFP's executor, with the name of the pod."""
    names = {"check_settings": ["report"], "summarise_run": ["summary", "report"]}[stage]
    artifacts = {
        name: {
            "artifacts": [
                {"name": name, "uri": str(folder / name), "type": {"schemaTitle": "system.Artifact"}}
            ]
        }
        for name in names
    }
    executor_input = {
        "inputs": {"parameterValues": given},
        "outputs": {"artifacts": artifacts, "outputFile": str(folder / "output.json")},
    }
    command = [sys.executable, "-m", "kfp.dsl.executor_main", "--component_module_path"]
    command += [str(ROOT / "components" / f"{stage}.py"), "--function_to_execute", stage]
    return subprocess.run(
        [*command, "--executor_input", json.dumps(executor_input)],
        cwd=ROOT,
        env={**os.environ, POD_NAME: pod},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_summary_of_a_run_says_which_task_failed_and_why(tmp_path: Path) -> None:
    """The registry's pointer names a champion that is not there, so the first task fails."""
    (tmp_path / "registry").mkdir()
    (tmp_path / "registry" / "CHAMPION").write_text("v-0123456789abcdef\n")
    overrides = [f"storage.uri={tmp_path / 'store'}", f"registry.uri={tmp_path / 'registry'}"]
    given = {"preset": "laptop", "overrides": overrides, "run_id": "0b1e-22"}
    first = execute("check_settings", tmp_path, pod="end-to-end-abcde-system-container-impl-1", **given)
    assert first.returncode != 0
    status = {"state": "FAILED", "pipelineJobResourceName": "end-to-end-abcde", "pipelineTaskName": "run"}
    last = execute(
        "summarise_run", tmp_path, pod="end-to-end-abcde-system-container-impl-2", **given, status=status
    )
    assert last.returncode == 0, last.stderr
    text = (tmp_path / "summary").read_text()
    assert text.startswith("# Run failed\n\n`end-to-end-abcde`\n\n```\ncheck-settings: ")
    assert "v-0123456789abcdef" in text.split("```")[1]
    assert "The red task on the run's page has the log." in text
    assert "summarise_run state=FAILED failures=['check-settings: " in last.stdout + last.stderr
