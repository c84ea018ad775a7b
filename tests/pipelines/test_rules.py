"""Rules for every pipeline that KFP does not check itself, each shown to catch a bad example."""

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Optional

import pytest
import yaml
from kfp import compiler, dsl

from components.images import GPU_IMAGE
from pipelines.compile import PIPELINES, compile_pipeline
from pipelines.profile import load_profile


class Scores(NamedTuple):
    accuracy: float
    names: list


@dsl.component(base_image="python:3.11")
def measure() -> Scores:
    return (0.5, ["a"])


@dsl.component(base_image="python:3.11")
def gate() -> bool:
    return True


@dsl.component(base_image="python:3.11")
def act(part: str = "all"):
    pass


@pytest.fixture
def end_to_end(tmp_path: Path) -> dict[str, Any]:
    return read(compile_pipeline("end_to_end", tmp_path, profile=load_profile("cluster"), iterations=2))


@pytest.mark.parametrize("name", PIPELINES)
@pytest.mark.parametrize("profile", ["local", "cluster"])
def test_a_pipeline_breaks_no_rule(tmp_path: Path, name: str, profile: str) -> None:
    compiled = read(compile_pipeline(name, tmp_path, profile=load_profile(profile), iterations=2))
    assert list(broken_rules(compiled)) == []
    assert (list(broken_cluster_rules(compiled)) == []) == (profile == "cluster")


def test_a_gpu_task_without_what_it_needs_is_found(end_to_end: dict[str, Any]) -> None:
    bad = copy.deepcopy(end_to_end)
    tasks = bad["components"]["comp-exit-handler-1"]["dag"]["tasks"]
    tasks["train-cooper"]["retryPolicy"]["backoffMaxDuration"] = "3600s"
    tasks["sample-completions"].pop("retryPolicy")
    platform = bad["platform"]["exec-train-verify-rm"]
    platform["emptyDirMounts"] = []
    platform["podMetadata"] = {}
    platform["secretAsEnv"] = []
    platform.pop("securityContext")
    bad["platform"]["exec-report"].pop("activeDeadlineSeconds")
    bad["deploymentSpec"]["executors"]["exec-evaluate-policy"]["container"]["resources"].pop("accelerator")
    assert sorted(broken_cluster_rules(bad)) == [
        "evaluate-policy: no accelerator",
        "report: no timeout",
        "sample-completions: no retry",
        "train-cooper: retries end after 3600 s, before its 864000 s",
        "train-verify-rm: may run as root",
        "train-verify-rm: no queue",
        "train-verify-rm: no secret",
        "train-verify-rm: no shared memory",
    ]


def test_a_condition_on_a_named_output_is_found(tmp_path: Path) -> None:
    """kfp.local takes such a condition for false without a word."""

    @dsl.pipeline(name="gated")
    def gated():
        with dsl.If(measure().outputs["accuracy"] > 0.4):
            act()

    assert list(broken_rules(_compile(gated, tmp_path))) == ["condition-1: condition on measure-accuracy"]


def test_a_condition_inside_another_block_is_found(tmp_path: Path) -> None:
    @dsl.pipeline(name="gated")
    def gated(flag: bool = True):
        scores = measure()
        with dsl.If(flag == True):  # noqa: E712, SIM117 - KFP overloads ==; nested on purpose
            with dsl.If(scores.outputs["accuracy"] > 0.4):
                act()

    assert list(broken_rules(_compile(gated, tmp_path))) == [
        "flag: no description",
        "condition-2: condition on measure-accuracy",
    ]


def test_a_loop_over_a_named_output_is_found(tmp_path: Path) -> None:
    @dsl.pipeline(name="looped")
    def looped():
        with dsl.ParallelFor(measure().outputs["names"]) as name:
            act(part=name)

    assert list(broken_rules(_compile(looped, tmp_path))) == ["for-loop-1: loop over measure-names"]


def test_a_condition_on_the_only_output_or_with_an_else_is_fine(tmp_path: Path) -> None:
    @dsl.pipeline(name="gated")
    def gated():
        with dsl.If(gate().output == True):  # noqa: E712 - KFP overloads ==
            act()
        with dsl.If(measure().outputs["accuracy"] > 0.4):
            act()
        with dsl.Else():
            act()

    assert list(broken_rules(_compile(gated, tmp_path))) == []


def test_a_loop_over_a_fixed_list_is_fine(tmp_path: Path) -> None:
    @dsl.pipeline(name="looped")
    def looped():
        with dsl.ParallelFor(["a", "b"]) as name:
            act(part=name)

    assert list(broken_rules(_compile(looped, tmp_path))) == []


def test_parameters_and_images_that_break_a_rule_are_found(end_to_end: dict[str, Any]) -> None:
    bad = copy.deepcopy(end_to_end)
    parameters = bad["root"]["inputDefinitions"]["parameters"]
    parameters["preset"].pop("defaultValue")
    parameters["overrides"].pop("description")
    parameters |= {f"extra_{i}": {"description": "one more", "parameterType": "STRING"} for i in range(8)}
    executors = bad["deploymentSpec"]["executors"]
    executors["exec-report"]["container"]["image"] = "cooper-rl-cpu:latest"
    executors["exec-train-cooper"]["container"]["image"] = "registry.example:5000/cooper-rl-gpu"
    assert list(broken_rules(bad)) == [
        "pipeline has 11 parameters: at most 10",
        "overrides: no description",
        "preset: defaults to None",
        "exec-report: image 'cooper-rl-cpu:latest' is not pinned to a version",
        "exec-train-cooper: image 'registry.example:5000/cooper-rl-gpu' is not pinned to a version",
    ]


def test_a_parameter_that_defaults_to_none_is_found(tmp_path: Path) -> None:
    @dsl.pipeline(name="optional")
    def optional(preset: Optional[str] = None):  # noqa: UP045 - KFP's own spelling
        """One.

        Args:
            preset: A name.
        """
        act()

    assert list(broken_rules(_compile(optional, tmp_path))) == ["preset: defaults to None"]


def broken_rules(pipeline: dict[str, Any]) -> Iterator[str]:
    """Every broken rule of a compiled pipeline, as `place: what is wrong`."""
    parameters = pipeline["root"].get("inputDefinitions", {}).get("parameters", {})
    if len(parameters) > 10:
        yield f"pipeline has {len(parameters)} parameters: at most 10"
    for name, parameter in sorted(parameters.items()):
        if not parameter.get("description"):
            yield f"{name}: no description"
        if parameter.get("isOptional") and parameter.get("defaultValue") is None and name != "status":
            yield f"{name}: defaults to None"
    for name, executor in sorted(pipeline["deploymentSpec"]["executors"].items()):
        if "importer" in executor:
            continue
        image = executor["container"]["image"]
        tag = image.rpartition("/")[2].partition(":")[2]
        if "@sha256:" not in image and tag in {"", "latest"}:
            yield f"{name}: image {image!r} is not pinned to a version"
    yield from _broken_control_flow(pipeline["root"]["dag"], pipeline["components"], is_branches=False)


def broken_cluster_rules(pipeline: dict[str, Any]) -> Iterator[str]:
    """Every broken rule of a pipeline that is compiled for a cluster."""
    executors = pipeline["deploymentSpec"]["executors"]
    for name, task in _leaf_tasks(pipeline["root"]["dag"], pipeline["components"]):
        label = pipeline["components"][task["componentRef"]["name"]]["executorLabel"]
        if "importer" in executors[label]:
            continue
        container, platform = executors[label]["container"], pipeline["platform"].get(label, {})
        timeout = int(platform.get("activeDeadlineSeconds", 0))
        retry = task.get("retryPolicy")
        if not timeout:
            yield f"{name}: no timeout"
        if retry is None:
            yield f"{name}: no retry"
        elif int(retry["backoffMaxDuration"].removesuffix("s")) < timeout:
            yield f"{name}: retries end after {retry['backoffMaxDuration'][:-1]} s, before its {timeout} s"
        if not platform.get("securityContext", {}).get("runAsNonRoot"):
            yield f"{name}: may run as root"
        if not platform.get("secretAsEnv"):
            yield f"{name}: no secret"
        if container["image"] != GPU_IMAGE:
            continue
        if "accelerator" not in container.get("resources", {}):
            yield f"{name}: no accelerator"
        if not any(mount["mountPath"] == "/dev/shm" for mount in platform.get("emptyDirMounts", [])):
            yield f"{name}: no shared memory"
        if "kueue.x-k8s.io/queue-name" not in platform.get("podMetadata", {}).get("labels", {}):
            yield f"{name}: no queue"


def _leaf_tasks(dag: dict[str, Any], components: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, task in dag["tasks"].items():
        inner = components[task["componentRef"]["name"]].get("dag")
        if inner is None:
            yield name, task
        else:
            yield from _leaf_tasks(inner, components)


def _broken_control_flow(
    dag: dict[str, Any], components: dict[str, Any], *, is_branches: bool
) -> Iterator[str]:
    """Plain conditions and loops that read an output with a name; with an Else, KFP adds a block around."""
    for name, task in dag["tasks"].items():
        component = task["componentRef"]["name"]
        condition = task.get("triggerPolicy", {}).get("condition", "")
        looped = task.get("parameterIterator", {}).get("items", {}).get("inputParameter", "")
        for channel in task.get("inputs", {}).get("parameters", {}):
            if condition and not is_branches and channel in condition and _is_named_output(channel):
                yield f"{name}: condition on {channel.removeprefix(CHANNEL)}"
            if channel == looped and _is_named_output(channel):
                yield f"{name}: loop over {channel.removeprefix(CHANNEL)}"
        if "dag" in components[component]:
            yield from _broken_control_flow(
                components[component]["dag"], components, is_branches="condition-branches" in name
            )


CHANNEL = "pipelinechannel--"


def _is_named_output(channel: str) -> bool:
    """`task-output` is an output of a task, `task-Output` its only one, a name without dash a parameter."""
    name = channel.removeprefix(CHANNEL)
    return "-" in name and not name.endswith("-Output") and "-loop-item" not in name


def _compile(pipeline: Any, folder: Path) -> dict[str, Any]:
    path = folder / "pipeline.yaml"
    compiler.Compiler().compile(pipeline, str(path))
    return read(path)


def read(path: Path) -> dict[str, Any]:
    """The pipeline, with what the second document says of each executor under `platform`."""
    specification, *platform = yaml.safe_load_all(path.read_text(encoding="utf-8"))
    found = platform[0]["platforms"]["kubernetes"]["deploymentSpec"]["executors"] if platform else {}
    return specification | {"platform": found}
