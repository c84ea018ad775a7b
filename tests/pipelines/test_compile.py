"""The compiled pipeline: golden YAML, its order, what flows where."""

from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from cooper_rl.errors import ConfigError
from cooper_rl.run import chain
from pipelines import __main__ as command_line
from pipelines.compile import (
    PIPELINES,
    check_parameters,
    compile_manifests,
    compile_pipeline,
    content_hash,
    count_tasks,
    read_compiled,
)
from pipelines.options import NAMES
from pipelines.profile import load_profile

GOLDEN = Path(__file__).parent.parent / "golden"
CLUSTER = load_profile("cluster")


@pytest.fixture(scope="module")
def tasks() -> dict[str, Any]:
    """The tasks of end_to_end inside its exit handler."""
    return inner_tasks(golden("end_to_end"))


@cache
def golden(name: str) -> dict[str, Any]:
    """The pipeline for a cluster with two iterations, as a test below finds it compiled."""
    return read_compiled(GOLDEN / f"{name}.yaml")


def inner_tasks(specification: dict[str, Any]) -> dict[str, Any]:
    return specification["components"]["comp-exit-handler-1"]["dag"]["tasks"]


@pytest.mark.parametrize("name", PIPELINES)
def test_the_compiled_pipeline_is_the_golden_one(tmp_path: Path, name: str) -> None:
    """When the change is meant, record it again: `make golden`."""
    path = compile_pipeline(name, tmp_path, profile=CLUSTER, iterations=2)
    assert path.read_text(encoding="utf-8") == (GOLDEN / f"{name}.yaml").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["end_to_end", "retrain"])
def test_compiling_twice_gives_the_same_version(tmp_path: Path, name: str) -> None:
    hashes = {
        content_hash(compile_pipeline(name, tmp_path / place, profile=CLUSTER, iterations=1))
        for place in ("one", "other")
    }
    assert len(hashes) == 1


def test_another_profile_is_another_version(tmp_path: Path) -> None:
    one, other = (
        compile_pipeline("verify_rm", tmp_path / name, profile=load_profile(name), iterations=1)
        for name in ("local", "cluster")
    )
    assert content_hash(one) != content_hash(other)


@pytest.mark.parametrize("name", PIPELINES)
def test_the_summary_is_written_however_the_run_ends(name: str) -> None:
    outer = golden(name)["root"]["dag"]
    assert sorted(outer["tasks"]) == ["exit-handler-1", "summarise-run"]
    assert outer["tasks"]["summarise-run"]["triggerPolicy"] == {"strategy": "ALL_UPSTREAM_TASKS_COMPLETED"}


def test_the_stages_come_in_the_order_of_the_method(tasks: dict[str, Any]) -> None:
    assert sorted(tasks) == [
        "check-settings",
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
    for order in (
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
        for before, after in pairwise(order):
            assert before in tasks[after]["dependentTasks"]


def test_nothing_is_trained_or_evaluated_on_a_verify_rm_that_was_not_measured(
    tasks: dict[str, Any],
) -> None:
    for name in ("evaluate-policy", "train-cooper", "train-cooper-2"):
        assert "evaluate-verify-rm" in tasks[name]["dependentTasks"]


def test_an_iteration_starts_from_the_checkpoint_before_it(tasks: dict[str, Any]) -> None:
    assert "start" not in tasks["train-cooper"]["inputs"]["artifacts"]
    start = tasks["train-cooper-2"]["inputs"]["artifacts"]["start"]["taskOutputArtifact"]
    assert start == {"outputArtifactKey": "checkpoint", "producerTask": "train-cooper"}


@pytest.mark.parametrize("name", ["end_to_end", "cooper"])
def test_the_frozen_arm_trains_beside_cooper_and_the_report_reads_both(tmp_path: Path, name: str) -> None:
    profile = load_profile("demo")
    found = inner_tasks(read_compiled(compile_pipeline(name, tmp_path, profile=profile, iterations=2)))
    arms = {
        task: found[task]["inputs"]["parameters"].get("arm", {}).get("runtimeValue", {}).get("constant")
        for task in found
        if task.startswith("train-cooper")
    }
    frozen = [*chain.FROZEN, "storage.arm=frozen"]
    assert arms == {
        "train-cooper": frozen,
        "train-cooper-2": frozen,
        "train-cooper-3": None,
        "train-cooper-4": None,
    }
    read = found["report"]["inputs"]["artifacts"]
    producers = {key: value["taskOutputArtifact"]["producerTask"] for key, value in read.items()}
    assert producers["frozen_checkpoint"] == "train-cooper-2"
    assert producers["checkpoint"] == "train-cooper-4"
    assert producers["frozen_evaluations"] == producers["frozen_completions"] == "evaluate-policy-3"


def test_every_task_has_a_display_name(tasks: dict[str, Any]) -> None:
    for name, task in tasks.items():
        assert task["taskInfo"]["name"] != name


def test_every_evaluation_sees_the_same_held_out_data(tasks: dict[str, Any]) -> None:
    seen = [
        {key: task["inputs"]["artifacts"][key] for key in ("problems", "examples")}
        for name, task in tasks.items()
        if name.startswith("evaluate-policy")
    ]
    assert len(seen) == 3
    assert seen[0] == seen[1] == seen[2]
    assert seen[0]["problems"]["taskOutputArtifact"]["outputArtifactKey"] == "held_out"
    assert seen[0]["examples"]["taskOutputArtifact"]["outputArtifactKey"] == "test"


def test_what_trains_on_fixed_data_is_cached_and_co_training_is_not(tasks: dict[str, Any]) -> None:
    uncached = [name for name, task in tasks.items() if not task["cachingOptions"].get("enableCache")]
    assert sorted(uncached) == [
        "check-settings",
        "evaluate-verify-rm",
        "report",
        "train-cooper",
        "train-cooper-2",
    ]


def test_without_the_cache_every_task_runs(tmp_path: Path) -> None:
    path = compile_pipeline(
        "end_to_end", tmp_path, profile=CLUSTER.model_copy(update={"cache": False}), iterations=1
    )
    assert "enableCache: true" not in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", PIPELINES)
def test_whoever_looks_at_checkpoints_is_given_their_name_and_the_runs_id(name: str) -> None:
    """The id as a whole constant, which is the only form in which the driver of KFP 2.17.0 fills it in."""
    specification = golden(name)
    graphs = [specification["root"], *specification["components"].values()]
    tasks = {name: task for graph in graphs for name, task in graph.get("dag", {}).get("tasks", {}).items()}
    given = {name: task["inputs"]["parameters"] for name, task in tasks.items() if "componentRef" in task}
    of_runs = {name for name, inputs in given.items() if "run_id" in inputs}
    more = {"retrain": {"check-settings-2", "promote"}, "verify_rm": set()}.get(name, set())
    iterations = {"verify_rm": [], "experiment": ["train-cooper"]}
    trained = iterations.get(name, ["train-cooper", "train-cooper-2"])
    assert of_runs == {"check-settings", "summarise-run", *trained, *more}
    for task in of_runs:
        assert given[task]["run_id"] == {"runtimeValue": {"constant": "{{$.pipeline_job_uuid}}"}}
        source = given[task]["run_key"].get("componentInputParameter", "")
        assert source.endswith("run_key") or name == "verify_rm"


@pytest.mark.parametrize("name", PIPELINES)
def test_nothing_begins_before_the_settings_were_checked(name: str) -> None:
    """An importer, which only names an artifact, is the one exception."""
    specification = golden(name)
    tasks = inner_tasks(specification)

    def begins_after(task: str) -> set[str]:
        before = tasks[task].get("dependentTasks", [])
        return {*before, *(earlier for each in before for earlier in begins_after(each))}

    first = {task for task in tasks if "check-settings" not in begins_after(task)}
    assert first - {"importer", "importer-2"} == {"check-settings"}


@pytest.mark.parametrize("name", PIPELINES)
@pytest.mark.parametrize("iterations", [1, 5])
def test_a_pipeline_stays_under_thirty_tasks(tmp_path: Path, name: str, iterations: int) -> None:
    specification = read_compiled(compile_pipeline(name, tmp_path, profile=CLUSTER, iterations=iterations))
    num_tasks = count_tasks(specification)
    assert num_tasks < 30
    if name == "end_to_end":
        assert num_tasks == 10 + 2 * iterations


@pytest.mark.parametrize("iterations", [0, 6])
def test_a_number_of_iterations_out_of_range_is_refused(tmp_path: Path, iterations: int) -> None:
    with pytest.raises(ConfigError, match=rf"iterations={iterations}: choose 1 to 5, and set cooper.steps"):
        compile_pipeline("cooper", tmp_path, profile=CLUSTER, iterations=iterations)


def test_an_unknown_pipeline_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match="pipeline 'cooperr': use one of end_to_end, verify_rm, cooper, retrain"
    ):
        compile_pipeline("cooperr", tmp_path, profile=CLUSTER, iterations=1)


def test_manifests_hold_the_pipeline_and_a_version_named_by_its_content(tmp_path: Path) -> None:
    path = compile_manifests("verify_rm", tmp_path, profile=CLUSTER, iterations=1, namespace="team")
    pipeline, version = yaml.safe_load_all(path.read_text(encoding="utf-8"))
    digest = content_hash(tmp_path / "verify_rm.yaml")
    assert (pipeline["apiVersion"], pipeline["kind"]) == ("pipelines.kubeflow.org/v2beta1", "Pipeline")
    assert pipeline["metadata"] == {"name": "verify-rm", "namespace": "team"}
    assert version["kind"] == "PipelineVersion"
    assert version["metadata"] == {"name": f"verify-rm-{digest}", "namespace": "team"}
    assert version["spec"]["pipelineName"] == "verify-rm"
    assert version["spec"]["pipelineSpec"] == read_compiled(tmp_path / "verify_rm.yaml")
    assert "kubernetes" in version["spec"]["platformSpec"]["platforms"]


def test_compile_prints_where_the_yaml_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["compile", "--output", str(tmp_path), "--pipeline", "verify_rm", "--manifests"]
    assert command_line.main(arguments) == 0
    shown = capsys.readouterr().out.split()
    assert [Path(line).name for line in shown] == ["verify_rm.yaml", "verify_rm.manifests.yaml"]
    assert all(Path(line).is_file() for line in shown)


def test_the_command_line_knows_every_pipeline() -> None:
    assert tuple(PIPELINES) == NAMES


def test_compile_says_what_is_wrong_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.main(["compile", "--iterations", "9"]) == 2
    assert capsys.readouterr().err.startswith("error: iterations=9: ")


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert command_line.main(["compile", "--output", str(tmp_path / "file/below")]) == 2
    assert "file/below/end_to_end.yaml: cannot be written: Not a directory" in capsys.readouterr().err


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


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"verify_rm": "a", "examples": "b", "runkey": "c"},
            "parameter 'runkey': cooper has examples, overr",
        ),
        (
            {"verify_rm": "a"},
            "parameter 'examples' of cooper is missing: URI of labelled .* --param examples=",
        ),
    ],
)
def test_parameters_that_do_not_fit_are_refused(tmp_path: Path, given: dict[str, str], message: str) -> None:
    specification = read_compiled(compile_pipeline("cooper", tmp_path, profile=CLUSTER, iterations=1))
    with pytest.raises(ConfigError, match=message):
        check_parameters(specification, given, name="cooper")


def test_a_parameter_without_a_value_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.main(["local", "--param", "run_key"]) == 2
    assert "--param 'run_key' is not NAME=VALUE" in capsys.readouterr().err


def test_a_profile_asks_for_the_red_team(tmp_path: Path) -> None:
    """Before co-training, which reads its texts, and on what is delivered, which the page shows."""
    asked = CLUSTER.model_copy(update={"red_team": True})
    found = read_compiled(compile_pipeline("end_to_end", tmp_path, profile=asked, iterations=1))
    tasks = inner_tasks(found)
    assert {"red-team", "red-team-2"} <= set(tasks)

    def source(task: str, name: str) -> str:
        return tasks[task]["inputs"]["artifacts"][name]["taskOutputArtifact"]["producerTask"]

    assert source("train-cooper", "attacks") == "red-team"
    assert source("red-team-2", "checkpoint") == "train-cooper"
    assert source("report", "red_team") == "red-team-2"
    retrain = compile_pipeline("retrain", tmp_path, profile=asked, iterations=1).read_text(encoding="utf-8")
    assert retrain.count("taskInfo:\n            name: Attack the delivered VerifyRM") == 1
