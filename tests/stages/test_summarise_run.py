"""The exit task: it says how a run ended, whatever is missing."""

import json
from pathlib import Path

import pytest

from cooper_rl.config.load import load
from cooper_rl.errors import DataError
from cooper_rl.records.files import read_report
from cooper_rl.schema.runs import RunEndReport
from cooper_rl.stages import summarise_run


def summarise(
    folder: Path, *overrides: str, state: str = "FAILED", message: str = ""
) -> tuple[str, RunEndReport]:
    status = folder / "status"
    status.write_text(json.dumps({"state": state, "run": "run-1", "message": message}))
    config = summarise_run.load_if_valid("laptop", overrides).config
    result = summarise_run.run(config, status=status, summary=folder / "summary.md", report=folder / "report")
    assert read_report(folder / "report", RunEndReport) == result
    return (folder / "summary.md").read_text(), result


def store(folder: Path, *checkpoints: str) -> list[str]:
    for name in checkpoints:
        place = folder / "store" / "monday" / name.split("/")[0]
        place.mkdir(parents=True)
        (place / "LATEST").write_text(name.split("/")[1] + "\n")
    return [f"storage.uri={folder / 'store'}", "storage.run_key=monday"]


def test_a_run_that_succeeded_says_so(tmp_path: Path) -> None:
    text, result = summarise(tmp_path, state="SUCCEEDED")
    assert text.startswith("# Run succeeded\n\n`run-1`\n")
    assert "To go on" not in text
    assert result.metrics() == {"has_succeeded": 1.0}


@pytest.mark.parametrize(
    ("state", "title", "has_succeeded"),
    [
        ("COMPLETE", "# Run succeeded", True),
        ("CACHED", "# Run succeeded", True),
        ("FAILED", "# Run failed", False),
        ("CANCELED", "# Run was cancelled", False),
        ("RUNNING", "# Run ended without a record of how", None),
        ("UNKNOWN", "# Run ended without a record of how", None),
    ],
)
def test_every_state_that_the_driver_of_a_cluster_hands_over_is_understood(
    tmp_path: Path, state: str, title: str, has_succeeded: bool | None
) -> None:
    """ML Metadata's states (`Execution.State`), and no message with any of them, as in KFP 2.17.0."""
    text, result = summarise(tmp_path, state=state)
    assert text.startswith(f"{title}\n\n`run-1`\n")
    assert ("To go on" in text) == (has_succeeded is not True)
    assert ("The red task on the run's page has the log" in text) == (has_succeeded is False)
    assert (f"still says `{state}`: a task's pod ended before" in text) == (has_succeeded is None)
    known = {} if has_succeeded is None else {"has_succeeded": float(has_succeeded)}
    assert result.metrics() == known


def test_a_run_that_failed_before_its_first_checkpoint_has_none_to_go_on_from(tmp_path: Path) -> None:
    text, _ = summarise(tmp_path, f"storage.uri={tmp_path / 'store'}", "storage.run_key=monday")
    assert "Co-training starts anew, since it has no checkpoint yet." in text
    assert "also `run_key=" not in text


def test_the_checkpoints_of_an_experiment_are_those_of_its_runs(tmp_path: Path) -> None:
    """Each run of one has a place of its own beside that of the name; nothing lies at the name itself."""
    for name, step in (("monday-rule_0", 4), ("monday-cooper_0", 2), ("monday-other", 9)):
        place = tmp_path / "store" / name / "from-000000"
        place.mkdir(parents=True)
        (place / "LATEST").write_text(f"step-00000{step}\n")
    runs = 'experiment.runs=[{arm="rule", seed=0}, {arm="cooper", seed=0}, {arm="cooper", seed=1}]'
    text, result = summarise(tmp_path, *store(tmp_path), runs)
    assert result.checkpoints == {
        "monday-rule_0/from-000000": "step-000004",
        "monday-cooper_0/from-000000": "step-000002",
    }
    assert f"Checkpoints below `{tmp_path / 'store'}`:" in text
    assert "| monday-cooper_0/from-000000 | step-000002 |" in text
    assert "also `run_key=monday`" in text


def test_the_runs_id_is_the_name_to_go_on_with(tmp_path: Path) -> None:
    place = tmp_path / "store" / "0b1e-22" / "from-000001"
    place.mkdir(parents=True)
    (place / "LATEST").write_text("step-000004\n")
    found = summarise_run.load_if_valid("laptop", [f"storage.uri={tmp_path / 'store'}"], run_id="0b1e-22")
    (tmp_path / "status").write_text(json.dumps({"state": "FAILED", "run": "run-1"}))
    summary = tmp_path / "summary.md"
    summarise_run.run(found.config, status=tmp_path / "status", summary=summary, report=tmp_path / "report")
    assert "also `run_key=0b1e-22`" in summary.read_text()
    assert "| from-000001 | step-000004 |" in summary.read_text()


def test_a_run_that_failed_says_which_checkpoints_it_left_and_how_to_go_on(tmp_path: Path) -> None:
    overrides = store(tmp_path, "from-000001/step-000020", "from-000021/step-000035-1a2b3c4d")
    text, result = summarise(tmp_path, *overrides, message="task train-cooper-2 failed")
    assert text.startswith("# Run failed")
    assert "task train-cooper-2 failed" in text
    assert "| from-000021 | step-000035-1a2b3c4d |" in text
    assert "also `run_key=monday`" in text
    assert result.last_step == 35
    assert result.metrics() == {"has_succeeded": 0.0, "last_step": 35.0}


def test_markup_in_a_pointer_is_not_shown(tmp_path: Path) -> None:
    overrides = store(tmp_path, "from-000001/step-000020")
    (tmp_path / "store" / "monday" / "from-000001" / "LATEST").write_text("<img src=x onerror=alert(1)>\n")
    text, result = summarise(tmp_path, *overrides, message="task train-cooper-2 failed")
    assert "onerror" not in text
    assert "| from-000001 | LATEST names no checkpoint |" in text
    assert result.last_step is None


def test_markup_in_the_name_of_a_folder_is_not_shown_and_hides_no_checkpoint(tmp_path: Path) -> None:
    overrides = store(tmp_path, "from-000001/step-000020")
    for name in ("from-1 [Log in](www.example)", "from-<img src=x onerror=alert(1)>"):
        (tmp_path / "store" / "monday" / name).mkdir()
        (tmp_path / "store" / "monday" / name / "LATEST").write_text("step-000099\n")
    text, result = summarise(tmp_path, *overrides, message="task train-cooper-2 failed")
    assert result.checkpoints == {"from-000001": "step-000020"}
    assert "onerror" not in text
    assert "Log in" not in text


def test_the_checkpoints_of_the_frozen_arm_are_found_too(tmp_path: Path) -> None:
    place = tmp_path / "store" / "monday-frozen" / "from-000001"
    place.mkdir(parents=True)
    (place / "LATEST").write_text("step-000004\n")
    text, result = summarise(tmp_path, *store(tmp_path))
    assert result.checkpoints == {"monday-frozen/from-000001": "step-000004"}
    assert f"Checkpoints below `{tmp_path / 'store'}`:" in text
    assert "also `run_key=monday`" in text


@pytest.mark.parametrize("overrides", [[], ["storage.run_key=monday"]])
def test_without_a_store_co_training_starts_anew(tmp_path: Path, overrides: list[str]) -> None:
    text, result = summarise(tmp_path, *overrides)
    assert "Co-training starts anew" in text
    assert "could not be looked up" not in text
    assert result.checkpoints == {}


def test_a_store_that_cannot_be_reached_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    text, _ = summarise(
        tmp_path, "storage.uri=s3://bucket/prefix", "storage.endpoint=http://127.0.0.1:1", "storage.run_key=a"
    )
    assert "The checkpoints could not be looked up: " in text


def test_a_missing_run_key_is_a_sentence(tmp_path: Path) -> None:
    text, _ = summarise(tmp_path, f"storage.uri={tmp_path}")
    assert "could not be looked up: storage.uri" in text
    assert "needs storage.run_key" in text
    assert "Co-training starts anew" in text


def test_a_wrong_configuration_is_summarised_too(tmp_path: Path) -> None:
    found = summarise_run.load_if_valid("laptop", ["cooper.stepz=1"])
    assert found.config is None
    assert "cooper.stepz: unknown key" in found.problem
    text, _ = summarise(tmp_path, "cooper.stepz=1", message=found.problem)
    assert "cooper.stepz: unknown key" in text
    assert "Nothing was trained with this configuration" in text


def test_a_message_cannot_break_out_of_its_block(tmp_path: Path) -> None:
    text, _ = summarise(tmp_path, message="``` <b>bold</b>")
    assert "\n```\n''' <b>bold</b>\n```\n" in text


def test_a_status_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="status"):
        summarise_run.run(
            load("laptop"), status=tmp_path / "status", summary=tmp_path / "s", report=tmp_path / "r"
        )
