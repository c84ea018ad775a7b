"""The run's id through kfp.local: the same in every task, in a branch, and in the exit task."""

import re
from pathlib import Path
from typing import Any

import pytest
from kfp import compiler, dsl

from components.check_settings import check_settings
from cooper_rl.records.files import read_report
from cooper_rl.schema.runs import SettingsReport
from pipelines.profile import load_profile
from pipelines.resources import Tasks
from pipelines.steps import checkpoints_of, component_of, summarised
from tests.pipelines.worker import run_worker


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def is_new() -> bool:  # pyright: ignore[reportInvalidTypeForm] KFP's
    """A gate, as take_champion is one."""
    return False


def compile_branches(folder: Path) -> Path:
    """The shape of `retrain`: two branches in an exit handler, of which one looks at the settings."""

    def branches(overrides: list[str] = [], run_key: str = "") -> None:  # noqa: B006 - as KFP wants it
        tasks = Tasks(load_profile("local"), {"preset": "laptop", "overrides": overrides})
        named = checkpoints_of(run_key)
        with summarised(tasks, run_key):
            tasks.add(check_settings, "First", **named)
            gate = is_new().set_caching_options(False)
            with dsl.If(gate.output == True):  # noqa: E712 - KFP overloads ==
                tasks.add(component_of("check_settings"), "Train", **named)
            with dsl.Else():
                tasks.add(component_of("check_settings"), "Keep", **named).after(gate)

    path = folder / "branches.yaml"
    compiler.Compiler().compile(dsl.pipeline(name="branches")(branches), str(path))
    return path


def run(folder: Path, **arguments: Any) -> Path:
    """Run the pipeline; returns the folder of its tasks."""
    status, printed = run_worker(
        compile_branches(folder),
        {"overrides": [f"storage.uri={folder / 'store'}"], **arguments},
        root=folder,
        run="branches-run",
        forks=True,
    )
    assert status == 0, printed[-3000:]
    return folder / "branches-run"


@pytest.mark.parametrize("run_key", ["", "monday"])
def test_every_task_of_a_run_agrees_on_the_name_of_its_checkpoints(tmp_path: Path, run_key: str) -> None:
    tasks = run(tmp_path, run_key=run_key)
    reports = sorted(tasks.glob("check-settings*/report"))
    assert [path.parent.name for path in reports] == ["check-settings", "check-settings-3"]
    places = {read_report(path, SettingsReport).checkpoints for path in reports}
    (place,) = places
    assert place is not None
    name = place.rpartition("/")[2]
    assert name == run_key or (not run_key and re.fullmatch("[0-9]{1,8}", name))
    summary = (tasks / "summarise-run" / "summary").read_text(encoding="utf-8")
    assert summary.startswith("# Run succeeded")
    assert f'"run_key": "{name}"' in summary
