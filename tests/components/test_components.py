"""Components: one per stage, thin, and with the stage's own paths."""

import ast
import math
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest

from components.images import CPU_IMAGE, GPU_IMAGE
from cooper_rl.errors import ConfigError
from cooper_rl.schema.reports import BinaryScores, EvaluateVerifyRMReport, Interval
from cooper_rl.stages import STAGES, read_signature

ROOT = Path(__file__).parent.parent.parent
MAX_STATEMENTS = 12


def function_of(stage: str) -> ast.FunctionDef:
    module = ast.parse((ROOT / "components" / f"{stage}.py").read_text(encoding="utf-8"))
    return next(node for node in module.body if isinstance(node, ast.FunctionDef))


def broken_rules(source: str) -> list[str]:
    """What KFP would get wrong, or what makes a component more than a face of its stage."""
    module = ast.parse(source)
    broken: list[str] = []
    for node in ast.walk(module):
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            broken.append("from __future__ import annotations")
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            broken.append(f"X | Y in line {node.lineno}: write Optional[...]")
    for function in (node for node in module.body if isinstance(node, ast.FunctionDef)):
        statements = [node for node in ast.walk(function) if isinstance(node, ast.stmt)]
        if len(statements) - 2 > MAX_STATEMENTS:  # the function itself and its docstring do not count
            broken.append(f"{function.name}: {len(statements) - 2} statements, at most {MAX_STATEMENTS}")
    return broken


def test_stage_file_command_and_component_file_match_one_to_one() -> None:
    stages = {path.stem for path in (ROOT / "src/cooper_rl/stages").glob("[!_]*.py")}
    components = {path.stem for path in (ROOT / "components").glob("[!_]*.py")} - {"images"}
    assert stages == components == set(STAGES)


@pytest.mark.parametrize("stage", STAGES)
def test_a_component_breaks_no_rule(stage: str) -> None:
    assert broken_rules((ROOT / "components" / f"{stage}.py").read_text(encoding="utf-8")) == []


def test_a_component_that_breaks_the_rules_is_found() -> None:
    source = (
        "from __future__ import annotations\n"
        "def stage(start: Model | None = None):\n"
        "    '''Do too much.'''\n" + "    pass\n" * 13
    )
    assert sorted(broken_rules(source)) == [
        "X | Y in line 2: write Optional[...]",
        "from __future__ import annotations",
        "stage: 13 statements, at most 12",
    ]


@pytest.mark.parametrize("stage", STAGES)
def test_a_component_has_the_paths_of_its_stage_and_no_others(stage: str) -> None:
    settings = {"preset", "overrides", "site", "run_key", "run_id", "arm"}
    of_component = {argument.arg for argument in function_of(stage).args.args} - settings
    of_stage = {parameter.name for parameter in read_signature(stage).parameters}
    assert of_component - {"curves"} == of_stage


@pytest.mark.parametrize("stage", STAGES)
def test_a_component_passes_every_path_of_its_stage_under_its_own_name(stage: str) -> None:
    call = next(
        node
        for node in ast.walk(function_of(stage))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "stage.run"
    )
    assert ast.unparse(call.args[0]) == "config"
    for keyword in call.keywords:
        name = keyword.arg
        assert ast.unparse(keyword.value) in (
            f"Path({name}.path)",
            f"Path({name}.path) if {name} else None",
            f"[Path(each.path) for each in {name}]",
            "Path(f'{summary.path}.status')",
        )


@pytest.mark.parametrize("stage", sorted({*STAGES} - {"summarise_run"}))
def test_a_component_reads_the_configuration_inside_the_frame_that_tells_kubernetes(stage: str) -> None:
    """`summarise_run` reads it itself: a wrong configuration is a way to end, which it summarises."""
    frame = next(node for node in ast.walk(function_of(stage)) if isinstance(node, ast.With))
    named = {argument.arg for argument in function_of(stage).args.args}
    given = ", run_key=run_key, run_id=run_id" if {"run_key", "run_id"} & named else ""
    changes = "[*site, *overrides, *arm]" if "arm" in named else "[*site, *overrides]"
    assert ast.unparse(frame.items[0]) == f"task(preset, {changes}{given}) as config"
    assert any(ast.unparse(node).startswith("result = stage.run(") for node in frame.body)


@pytest.mark.parametrize("stage", STAGES)
def test_an_input_is_optional_exactly_where_the_stage_can_do_without_and_no_output_is(stage: str) -> None:
    component = function_of(stage).args
    defaults = dict(
        zip([a.arg for a in component.args][-len(component.defaults) :], component.defaults, strict=True)
    )
    for parameter in read_signature(stage).parameters:
        assert (parameter.name not in defaults) == (parameter.is_required or parameter.is_output)


@pytest.mark.parametrize("stage", STAGES)
def test_a_component_runs_in_the_image_of_this_version_and_installs_nothing(stage: str) -> None:
    component = getattr(import_module(f"components.{stage}"), stage)
    container = component.component_spec.implementation.container
    assert container.image in {CPU_IMAGE, GPU_IMAGE}
    assert "pip install" not in " ".join(container.command)


@pytest.mark.parametrize(
    ("overrides", "wrong"),
    [([], "storage.run_key: use 1 to 100 letters"), (["storage.run_key=mine"], "cooper.stepz: unknown key")],
)
def test_the_run_key_is_an_override_in_front_of_the_others(overrides: list[str], wrong: str) -> None:
    """An unusable key is refused, unless a later override replaces it; either way nothing is trained."""
    train_cooper = import_module("components.train_cooper").train_cooper
    artifact = SimpleNamespace(path="nowhere")
    others = dict.fromkeys(("models", "verify_rm", "problems", "checkpoint", "report"), artifact)
    with pytest.raises(ConfigError) as refused:
        train_cooper.python_func(
            preset="laptop", overrides=[*overrides, "cooper.stepz=1"], run_key="../x", **others
        )
    assert wrong in str(refused.value)
    assert str(refused.value).count("storage.run_key") == (not overrides)


@pytest.mark.parametrize("stage", STAGES)
def test_every_input_and_output_of_a_component_is_described(stage: str) -> None:
    documented = ast.get_docstring(function_of(stage)) or ""
    for argument in function_of(stage).args.args:
        assert f"\n    {argument.arg}: " in documented


def test_metrics_are_finite_whatever_a_report_holds() -> None:
    """NaN or infinity in an artifact's metadata makes the KFP task fail."""
    nan = BinaryScores(
        num_examples=0,
        accuracy=Interval(value=math.nan, low=-math.inf, high=math.inf, count=0),
        majority_accuracy=0.5,
        precision=None,
        recall=None,
        auroc=None,
    )
    report = EvaluateVerifyRMReport(
        overall=nan, by_source={"": nan}, confusion={"true_positive": 1}, roc=[(0.0, 0.0, math.inf)]
    )
    metrics = report.metrics()
    assert all(math.isfinite(value) for value in metrics.values())
    assert (
        metrics.items()
        >= {
            "overall/num_examples": 0.0,
            "overall/accuracy/count": 0.0,
            "overall/majority_accuracy": 0.5,
            "by_source//num_examples": 0.0,
            "by_source//accuracy/count": 0.0,
            "by_source//majority_accuracy": 0.5,
            "confusion/true_positive": 1.0,
        }.items()
    )
