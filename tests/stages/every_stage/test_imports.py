"""Tasks without a model start in half a second: they import neither torch nor transformers."""

import subprocess
import sys

import pytest

LIGHT = [
    "check_settings", "collect_problems", "label_completions", "merge_labels", "promote", "report",
    "summarise_run", "take_champion",
]  # fmt: skip


@pytest.mark.parametrize("stage", LIGHT)
def test_a_stage_without_a_model_imports_no_torch(stage: str) -> None:
    code = (
        f"import sys; import cooper_rl.stages.{stage}; "
        "print([name for name in ('torch', 'transformers') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
