"""The tracker with TensorBoard: numbers that can be read back, each once, and no failure in training."""

import sys
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

from cooper_rl.checkpoints.logs import METRICS
from cooper_rl.checkpoints.reference import open_checkpoint
from cooper_rl.config.infrastructure import StorageConfig, TrackerConfig
from cooper_rl.config.load import load
from cooper_rl.errors import ConfigError
from cooper_rl.records.live import find_live
from cooper_rl.records.step_metrics import read_metrics
from cooper_rl.run.tracker import Tracker
from cooper_rl.schema.data import RolloutSample
from cooper_rl.schema.step_metrics import RolloutMetrics, StepMetrics
from cooper_rl.stages import train_cooper
from tests.full_disk import no_file_beyond
from tests.stages.conftest import SMALL

SESSION_START = "_hparams_/session_start_info"


def tensorboard(folder: Path) -> TrackerConfig:
    return TrackerConfig(kind="tensorboard", uri=str(folder))


def read_back(folder: Path, name: str) -> list[tuple[int, float]]:
    events = EventAccumulator(str(folder))
    events.Reload()
    return [(event.step, event.value) for event in events.Scalars(name)]


def row(step: int) -> StepMetrics:
    return StepMetrics(
        step=step, rollout=RolloutMetrics(reward=step / 4, verify_rm_reward=0.5, rule_accuracy=0.5)
    )


def test_every_number_of_a_step_is_in_the_event_file(tmp_path: Path) -> None:
    with Tracker(tensorboard(tmp_path), run="r") as tracker:
        first = row(1)
        first.pairs.count = 3
        tracker.write(first)
        tracker.write(row(2))
    assert read_back(tmp_path / "r", "rollout/reward") == [(1, 0.25), (2, 0.5)]
    assert read_back(tmp_path / "r", "pairs/count") == [(1, 3.0)]


def test_a_resumed_run_writes_no_step_twice(tmp_path: Path) -> None:
    """Stopped after step 3, whose last checkpoint was step 1: steps 2 and 3 are trained again."""
    for steps in ((1, 2, 3), (2, 3, 4)):
        with Tracker(tensorboard(tmp_path), run="r") as tracker:
            for step in steps:
                tracker.write(row(step))
    assert [step for step, _ in read_back(tmp_path / "r", "rollout/reward")] == [1, 2, 3, 4]


def sample(step: int) -> RolloutSample:
    return RolloutSample(
        step=step, problem_id="p", question="How many?", reference_answer="4", completion="<b>2+2=5</b>",
        reward=0.75, score=0.75, rule="incorrect",
    )  # fmt: skip


def test_texts_of_every_tenth_step_and_the_settings_are_there_too(tmp_path: Path) -> None:
    """Steps 1, 10 and 20 have texts; a second start adds those of step 30 and no other settings."""
    for steps, seed in ((range(1, 26), "7"), (range(21, 31), "8")):
        with Tracker(tensorboard(tmp_path), run="r", settings={"seed": seed}) as tracker:
            for step in steps:
                tracker.write(row(step), [sample(step)])
    events = EventAccumulator(str(tmp_path / "r"), size_guidance={"tensors": 0})
    events.Reload()
    texts = events.Tensors("rollouts/text_summary")
    assert [event.step for event in texts] == [1, 10, 20, 30]
    text = texts[0].tensor_proto.string_val[0].decode()
    assert "reward 0.750, VerifyRM 0.750, rule: incorrect" in text
    assert "    <b>2+2=5</b>" in text
    (settings,) = events.Tensors("settings/text_summary")
    assert b"|seed|`7`|" in settings.tensor_proto.string_val[0]
    started = HParamsPluginData.FromString(events.SummaryMetadata(SESSION_START).plugin_data.content)
    assert dict(started.session_start_info.hparams)["seed"].string_value == "7"


def test_without_a_tracker_nothing_is_written(tmp_path: Path) -> None:
    with Tracker(None, run="r") as tracker:
        tracker.write(row(1))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["tensorboard", "mlflow", "wandb"])
def test_a_missing_library_names_the_extra(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("torch.utils.tensorboard", "mlflow", "mlflow.tracking", "wandb"):
        monkeypatch.setitem(sys.modules, name, None)
    config = TrackerConfig.model_validate({"kind": kind, "uri": "nowhere"})
    with pytest.raises(ConfigError, match=rf"tracker\.kind={kind} .*pip install '\.\[{kind}\]'"):
        Tracker(config, run="r")


def test_a_tracker_that_cannot_be_opened_is_warned_of_once(tmp_path: Path, caplog) -> None:
    (tmp_path / "file").write_text("no folder")
    with Tracker(tensorboard(tmp_path / "file"), run="r") as tracker:
        for step in (1, 2, 3):
            tracker.write(row(step))
    assert len([r for r in caplog.records if "tracker.kind=tensorboard fails" in r.message]) == 1


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # its writer thread
def test_a_tracker_that_fails_in_the_middle_is_warned_of_once(tmp_path: Path, caplog) -> None:
    """No file may grow for a while, as on a full disk; nothing is tried again afterwards."""
    with Tracker(tensorboard(tmp_path), run="r") as tracker:
        tracker.write(row(1))
        with no_file_beyond(0):
            tracker.write(row(2))
            tracker.write(row(3))
        tracker.write(row(4))
    assert len([r for r in caplog.records if "tracker.kind=tensorboard fails" in r.message]) == 1
    assert read_back(tmp_path / "r", "rollout/reward") == [(1, 0.25)]


def test_training_writes_the_rows_of_metrics_jsonl(files, tmp_path: Path) -> None:
    """Two steps, then two more in a second start."""
    for steps in (2, 4):
        overrides = [f"cooper.steps={steps}", "tracker.kind=tensorboard", f"tracker.uri={tmp_path}/tb"]
        train_cooper.run(
            load("laptop", [*SMALL, *overrides, "storage.run_key=mine"]),
            models=files.models,
            verify_rm=files.verify_rm,
            problems=files.problems,
            checkpoint=tmp_path / "checkpoint",
            report=tmp_path / "report.json",
        )
    with open_checkpoint(tmp_path / "checkpoint", StorageConfig(), logs=(METRICS,)) as found:
        rows = read_metrics(*found.log[METRICS])
    found_rows = read_back(tmp_path / "tb" / "mine", "rollout/reward")
    assert found_rows == [(row.step, pytest.approx(row.rollout.reward)) for row in rows]
    (live,) = find_live(tmp_path)
    assert live.metrics == rows
    assert (live.header.last_step, live.header.settings["storage.run_key"]) == (4, '"mine"')
