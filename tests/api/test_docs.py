"""The Python of the documentation runs; the example program for TRL compiles and calls what there is."""

import ast
import inspect
import re
from pathlib import Path

from trl import GRPOConfig, GRPOTrainer

from cooper_rl import CooperReward

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
    program = (ROOT / "examples/trl_gsm8k.py").read_text(encoding="utf-8")
    kinds = {"CooperReward": CooperReward, "GRPOTrainer": GRPOTrainer, "GRPOConfig": GRPOConfig}
    checked = []
    for text in [program, *blocks("docs/how-to/trainers/trl.md")]:
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in kinds:
                known = inspect.signature(kinds[node.func.id]).parameters
                given = {keyword.arg for keyword in node.keywords}
                assert given <= set(known), node.func.id
                checked.append(node.func.id)
    assert sorted(checked) == sorted([*kinds, *kinds, "GRPOTrainer"])
