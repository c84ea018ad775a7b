"""Input artifacts as a real backend hands them over: with an address, and with no name of their type."""

import importlib
import inspect
from pathlib import Path
from typing import Any

import pytest
from kfp.dsl import Artifact
from kfp.dsl.executor import Executor
from kfp.dsl.types import type_annotations

from cooper_rl.stages import STAGES


def takes(annotation: Any) -> bool:
    plain = type_annotations.maybe_strip_optional_from_annotation(annotation)
    return type_annotations.is_Input_Output_artifact_annotation(plain)


@pytest.mark.parametrize("stage", STAGES)
def test_every_artifact_that_a_task_is_given_is_made(stage: str, tmp_path: Path) -> None:
    """KFP 2.17.0's driver writes this type for every input; kfp.local writes the schema's title."""
    function = getattr(importlib.import_module(f"components.{stage}"), stage).python_func
    names = [
        name
        for name, parameter in inspect.signature(function).parameters.items()
        if takes(parameter.annotation)
    ]
    given = {
        name: {
            "artifacts": [
                {"name": "9", "type": {"instanceSchema": ""}, "uri": f"s3://bucket/{name}", "metadata": {}}
            ]
        }
        for name in names
    }
    executor = Executor(
        executor_input={
            "inputs": {"artifacts": given, "parameterValues": {}},
            "outputs": {"outputFile": str(tmp_path / "output.json")},
        },
        function_to_execute=function,
    )
    for name in names:
        made = executor.input_artifacts[name]
        assert all(isinstance(each, Artifact) for each in (made if isinstance(made, list) else [made]))
