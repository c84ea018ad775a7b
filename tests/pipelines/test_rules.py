"""Rules for every pipeline that KFP does not check itself, each shown to catch a bad example."""

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Optional

import pytest
import yaml
from kfp import compiler, dsl

from pipelines._compile import compile_end_to_end


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
    return _read(compile_end_to_end(tmp_path, iterations=2))


def test_the_pipeline_breaks_no_rule(end_to_end: dict[str, Any]) -> None:
    assert list(broken_rules(end_to_end)) == []


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
        if parameter.get("isOptional") and parameter.get("defaultValue") is None:
            yield f"{name}: defaults to None"
    for name, executor in sorted(pipeline["deploymentSpec"]["executors"].items()):
        image = executor["container"]["image"]
        tag = image.rpartition("/")[2].partition(":")[2]
        if "@sha256:" not in image and tag in {"", "latest"}:
            yield f"{name}: image {image!r} is not pinned to a version"
    yield from _broken_control_flow(pipeline["root"]["dag"], pipeline["components"], is_branches=False)


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
    return _read(path)


def _read(path: Path) -> dict[str, Any]:
    return yaml.safe_load(path.read_text(encoding="utf-8"))
