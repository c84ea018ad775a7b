"""Retraining: its compiled form, and a registry over three runs through kfp.local."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from cooper_rl.checkpoints.registry import Champion, Registry
from cooper_rl.config.infrastructure import StorageConfig
from cooper_rl.storage.open import open_store
from pipelines.__main__ import main
from pipelines.compile import compile_pipeline, read_compiled
from pipelines.profile import load_profile
from tests.small_run import SMALL, run_pipelines

CONDITION = "inputs.parameter_values['pipelinechannel--take-champion-Output'] == true"


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("compiled")
    path = compile_pipeline("retrain", folder, profile=load_profile("cluster"), iterations=2)
    return read_compiled(path)["components"]


def test_nothing_is_trained_unless_enough_is_new(compiled: dict[str, Any]) -> None:
    outer = compiled["comp-exit-handler-1"]["dag"]["tasks"]
    assert sorted(outer) == [
        "check-settings",
        "collect-problems",
        "condition-branches-2",
        "prepare-models",
        "take-champion",
    ]
    branches = compiled["comp-condition-branches-2"]["dag"]["tasks"]
    assert branches["condition-3"]["triggerPolicy"]["condition"] == CONDITION
    assert branches["condition-4"]["triggerPolicy"]["condition"] == f"!({CONDITION})"
    assert sorted(compiled["comp-condition-4"]["dag"]["tasks"]) == ["check-settings-2"]


def test_everything_is_learned_from_the_champion_and_judged_on_its_frozen_sets(
    compiled: dict[str, Any],
) -> None:
    tasks = compiled["comp-condition-3"]["dag"]["tasks"]

    def source(task: str, artifact: str) -> str:
        found = tasks[task]["inputs"]["artifacts"][artifact]
        if "componentInputArtifact" in found:
            return found["componentInputArtifact"].removeprefix("pipelinechannel--")
        output = found["taskOutputArtifact"]
        return f"{output['producerTask']}-{output['outputArtifactKey']}"

    trained = ("train-cooper", "train-cooper-2")
    for task in ("sample-completions", "train-verify-rm", "evaluate-policy", *trained):
        assert source(task, "models") == "take-champion-models"
    for task in ("sample-completions", "label-completions", "promote", *trained):
        assert source(task, "problems") == "take-champion-problems"
    assert source("label-completions", "frozen") == "take-champion-examples"
    for task in ("evaluate-policy", "evaluate-policy-2", "evaluate-policy-3"):
        assert source(task, "problems") == "take-champion-held_out"
        assert source(task, "examples") == "label-completions-test"
    assert source("promote", "held_out") == "take-champion-held_out"
    assert source("promote", "examples") == "label-completions-test"
    assert source("promote", "checkpoint") == "train-cooper-2-checkpoint"
    assert source("promote", "evaluations") == "evaluate-policy-3-evaluations"


def test_what_looks_at_the_registry_or_at_addresses_is_never_cached(compiled: dict[str, Any]) -> None:
    tasks = compiled["comp-exit-handler-1"]["dag"]["tasks"] | compiled["comp-condition-3"]["dag"]["tasks"]
    for name in ("collect-problems", "take-champion", "promote", "train-cooper"):
        assert not tasks[name]["cachingOptions"].get("enableCache")
    assert tasks["label-completions"]["cachingOptions"]["enableCache"]


def test_a_run_without_a_registry_is_refused_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["local", "retrain", "--output", str(tmp_path / "run")]) == 2
    assert "registry.uri is not set: give s3://bucket/prefix, or a folder" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_registry_over_three_runs(tmp_path: Path) -> None:
    """A first champion; a run without anything new; one with twenty more problems that is not shown to be
    better: models of this size are never right, so the comparison has no other end."""
    registry = tmp_path / "registry"

    def retrain(num_problems: int) -> str:
        settings = [f"problems.num_tiny={num_problems}", f"registry.uri={registry}"]
        return run_small("retrain", tmp_path / "run", *settings, "registry.max_canary_rate=1")

    shown = retrain(60)
    first = champion_of(registry)
    assert first is not None
    assert "has no champion. Of 60 collected problems 50 are new" in shown
    assert f"{first.name} is promoted, the first champion. There was no champion to be better than." in shown

    shown = retrain(60)
    assert "0 are new" in shown
    assert "Nothing is trained in this run, and nothing changes" in shown
    assert "train-cooper" not in shown

    shown = retrain(80)
    assert "20 are new" in shown
    assert f"Training starts from {first.name}'s policy and VerifyRM, on the new problems." in shown
    assert f"{first.name} stays champion. Accuracy is not better beyond the interval" in shown
    assert champion_of(registry) == first


@pytest.mark.slow
def test_co_training_alone_goes_on_from_a_verify_rm_of_an_earlier_run(tmp_path: Path) -> None:
    """The pipeline `verify_rm`, then `cooper` with two of its artifacts, named as the documentation says."""
    run_small("verify_rm", tmp_path / "first")
    (before,) = (tmp_path / "first").glob("verify-rm-20*")
    verify_rm, examples = before / "train-verify-rm" / "verify_rm", before / "label-completions" / "test"
    parameters = ["--param", f"verify_rm={verify_rm}", "--param", f"examples={examples}"]
    shown = run_small("cooper", tmp_path / "second", parameters=parameters)
    assert "report  done in" in shown
    assert (tmp_path / "second" / "report.html").is_file()
    (after,) = (tmp_path / "second").glob("cooper-20*")
    checkpoint = after / "train-cooper" / "checkpoint"
    assert (checkpoint / "LATEST").read_text() == "step-000002\n"


def run_small(pipeline: str, output: Path, *settings: str, parameters: Sequence[str] = ()) -> str:
    """Run a pipeline at the smallest settings; returns what it showed."""
    overrides = [word for override in (*SMALL, *settings) for word in ("--set", override)]
    command = ["local", pipeline, "--iterations", "1", "--output", str(output), *overrides, *parameters]
    return run_pipelines(command, timeout_seconds=1800)


def champion_of(registry: Path) -> Champion | None:
    return Registry(open_store(StorageConfig(), registry)).champion()
