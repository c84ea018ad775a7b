"""The compiled pipeline: golden YAML, its order, what flows where."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from cooper_rl.errors import ConfigError
from pipelines import __main__ as command_line
from pipelines._compile import compile_end_to_end

GOLDEN = Path(__file__).parent.parent / "golden" / "end_to_end.yaml"


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = compile_end_to_end(tmp_path_factory.mktemp("compiled"), iterations=2)
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def test_the_compiled_pipeline_is_the_golden_one(tmp_path: Path) -> None:
    """When the change is meant, record it again: `make golden`."""
    path = compile_end_to_end(tmp_path, iterations=2)
    assert path.read_text(encoding="utf-8") == GOLDEN.read_text(encoding="utf-8")


def test_the_stages_come_in_the_order_of_the_method(compiled: dict[str, Any]) -> None:
    tasks = compiled["root"]["dag"]["tasks"]
    assert sorted(tasks) == [
        "collect-problems",
        "evaluate-policy",
        "evaluate-policy-2",
        "evaluate-policy-3",
        "evaluate-verify-rm",
        "label-completions",
        "prepare-models",
        "report",
        "sample-completions",
        "train-cooper",
        "train-cooper-2",
        "train-verify-rm",
    ]
    for chain in (
        [
            "sample-completions",
            "label-completions",
            "train-verify-rm",
            "evaluate-verify-rm",
            "evaluate-policy",
        ],
        ["evaluate-verify-rm", "train-cooper", "train-cooper-2", "evaluate-policy-3", "report"],
        ["evaluate-policy", "evaluate-policy-2", "evaluate-policy-3"],
    ):
        for before, after in pairwise(chain):
            assert before in tasks[after]["dependentTasks"]


def test_nothing_is_trained_or_evaluated_on_a_verify_rm_that_was_not_measured(
    compiled: dict[str, Any],
) -> None:
    tasks = compiled["root"]["dag"]["tasks"]
    for name in ("evaluate-policy", "train-cooper", "train-cooper-2"):
        assert "evaluate-verify-rm" in tasks[name]["dependentTasks"]


def test_an_iteration_starts_from_the_checkpoint_before_it(compiled: dict[str, Any]) -> None:
    tasks = compiled["root"]["dag"]["tasks"]
    assert "start" not in tasks["train-cooper"]["inputs"]["artifacts"]
    start = tasks["train-cooper-2"]["inputs"]["artifacts"]["start"]["taskOutputArtifact"]
    assert start == {"outputArtifactKey": "checkpoint", "producerTask": "train-cooper"}


def test_every_iteration_is_given_the_run_key_and_nothing_else_is(compiled: dict[str, Any]) -> None:
    assert compiled["root"]["inputDefinitions"]["parameters"]["run_key"]["defaultValue"] == ""
    given = {
        name: task["inputs"]["parameters"]["run_key"]
        for name, task in compiled["root"]["dag"]["tasks"].items()
        if "run_key" in task["inputs"]["parameters"]
    }
    assert sorted(given) == ["train-cooper", "train-cooper-2"]
    assert all(value == {"componentInputParameter": "run_key"} for value in given.values())


def test_every_task_has_a_display_name(compiled: dict[str, Any]) -> None:
    for name, task in compiled["root"]["dag"]["tasks"].items():
        assert task["taskInfo"]["name"] != name


def test_every_evaluation_sees_the_same_held_out_data(compiled: dict[str, Any]) -> None:
    tasks = compiled["root"]["dag"]["tasks"]
    seen = [
        {key: task["inputs"]["artifacts"][key] for key in ("problems", "examples")}
        for name, task in tasks.items()
        if name.startswith("evaluate-policy")
    ]
    assert len(seen) == 3
    assert seen[0] == seen[1] == seen[2]
    assert seen[0]["problems"]["taskOutputArtifact"]["outputArtifactKey"] == "held_out"
    assert seen[0]["examples"]["taskOutputArtifact"]["outputArtifactKey"] == "test"


def test_everything_but_co_training_is_cached(compiled: dict[str, Any]) -> None:
    tasks = compiled["root"]["dag"]["tasks"]
    uncached = [name for name, task in tasks.items() if not task["cachingOptions"].get("enableCache")]
    assert sorted(uncached) == ["train-cooper", "train-cooper-2"]


@pytest.mark.parametrize("iterations", [1, 5])
def test_a_pipeline_stays_under_thirty_tasks(tmp_path: Path, iterations: int) -> None:
    path = compile_end_to_end(tmp_path, iterations=iterations)
    tasks = yaml.safe_load(path.read_text(encoding="utf-8"))["root"]["dag"]["tasks"]
    assert len(tasks) == 8 + 2 * iterations < 30


@pytest.mark.parametrize("iterations", [0, 6])
def test_a_number_of_iterations_out_of_range_is_refused(tmp_path: Path, iterations: int) -> None:
    with pytest.raises(ConfigError, match=rf"iterations={iterations}: choose 1 to 5, and set cooper.steps"):
        compile_end_to_end(tmp_path, iterations=iterations)


def test_compile_prints_where_the_yaml_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.main(["compile", "--output", str(tmp_path), "--iterations", "1"]) == 0
    assert Path(capsys.readouterr().out.strip()).is_file()


def test_compile_says_what_is_wrong_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.main(["compile", "--iterations", "9"]) == 2
    assert capsys.readouterr().err.startswith("error: iterations=9: ")


def test_compiling_writes_no_credential_into_the_yaml(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the person who compiles has in the environment: pods get their own from a secret."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "MINIO_SECRET_KEY"):
        monkeypatch.setenv(name, f"hunter2-{name}")
    assert command_line.main(["compile", "--output", str(tmp_path)]) == 0
    compiled = list(tmp_path.rglob("*.yaml"))
    assert compiled
    assert not any("hunter2" in path.read_text(encoding="utf-8") for path in compiled)
