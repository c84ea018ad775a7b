"""The Python of the documentation runs, and so does the example program for TRL on the laptop world. That for
GSM8K compiles and calls what there is."""

import ast
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from trl import GRPOConfig, GRPOTrainer

from cooper_rl import CooperReward, load_verify_rm
from tests.api.rewarding import same_weights

ROOT = Path(__file__).parent.parent.parent


def blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), flags=re.DOTALL)


def test_the_page_on_the_python_api_runs_from_top_to_bottom(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    found = blocks("docs/reference/python_api.md")
    assert len(found) == 4
    names: dict[str, object] = {}
    for block in found:
        exec(compile(block, "docs/reference/python_api.md", "exec"), names)  # the page's own code
    assert len(names["rewards"]) == 2
    assert (tmp_path / "runs/reward/LATEST").is_file()


def test_the_programs_for_trl_pass_arguments_that_exist() -> None:
    programs = [path.read_text(encoding="utf-8") for path in (ROOT / "examples").glob("trl_*.py")]
    kinds = {"CooperReward": CooperReward, "GRPOTrainer": GRPOTrainer, "GRPOConfig": GRPOConfig}
    checked = []
    for text in [*programs, *blocks("docs/how-to/trainers/trl.md")]:
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in kinds:
                known = inspect.signature(kinds[node.func.id]).parameters
                given = {keyword.arg for keyword in node.keywords}
                assert given <= set(known), node.func.id
                checked.append(node.func.id)
    assert sorted(checked) == sorted([*kinds, *kinds, *kinds, "GRPOTrainer"])


@pytest.mark.slow
def test_the_program_for_trl_on_the_laptop_world_trains_both_models(tmp_path: Path) -> None:
    """Minutes: from an empty folder, where the policy learns enough to be right at times, and once again from
    the start that the folder then holds."""
    preset = tmp_path / "small.toml"
    small = ["problems.num_tiny = 600", "sampling.max_problems = 400", "verify_rm.num_epochs = 1"]
    preset.write_text("\n".join(['extends = "laptop"', *small]), encoding="utf-8")
    output = tmp_path / "output"
    command = [sys.executable, str(ROOT / "examples/trl_laptop.py"), "--output", str(output), "--steps", "2"]
    for options in (["--preset", str(preset)], ["--preset", "no such preset"]):
        done = subprocess.run(
            [*command, *options],
            cwd=tmp_path, capture_output=True, text=True, check=False, timeout=600,
            env=os.environ | {"PYTHONPATH": str(ROOT / "src"), "HF_HUB_OFFLINE": "1"},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]
        assert re.search(
            r"^rollout/reward +0\.\d+ -> 0\.\d+\nrollout/rule_accuracy +", done.stdout, re.MULTILINE
        )
        start, trained = (
            load_verify_rm(output / name, device="cpu") for name in ("verify_rm", "trained_verify_rm")
        )
        assert not same_weights(start, trained)
