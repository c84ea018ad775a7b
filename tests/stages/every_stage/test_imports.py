"""Tasks without a model start in half a second: they import no library that they need later or never."""

import subprocess
import sys

import pytest

LIGHT = {
    "cooper_rl.stages.check_settings": [],
    "cooper_rl.stages.collect_problems, cooper_rl.tiny.problems": ["sympy", "datasets"],
    "cooper_rl.stages.label_completions, cooper_rl.servers.chat": ["kfp", "math_verify"],
    "cooper_rl.stages.merge_labels": [],
    "cooper_rl.stages.promote": [],
    "cooper_rl.stages.report": ["matplotlib"],
    "cooper_rl.stages.summarise_run": [],
    "cooper_rl.stages.take_champion": [],
}
"""Modules of a stage -> what they import late, beside torch and transformers."""


@pytest.mark.parametrize(("modules", "late"), LIGHT.items())
def test_a_stage_without_a_model_imports_no_torch(modules: str, late: list[str]) -> None:
    code = (
        f"import sys; import {modules}; "
        f"print([name for name in {['torch', 'transformers', *late]} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
