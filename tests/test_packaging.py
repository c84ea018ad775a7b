"""The package as a whole: what importing it costs, how its floors hold, what it pins."""

import ast
import re
import subprocess
import sys
import tomllib
from itertools import chain
from pathlib import Path

import pytest

from cooper_rl.config.load import load, preset_names

ROOT = Path(__file__).parent.parent
SOURCES = ("src/cooper_rl", "components", "pipelines")


def test_init_files_hold_nothing_but_docstrings_apart_from_the_public_api() -> None:
    files = [path for folder in SOURCES for path in (ROOT / folder).rglob("__init__.py")]
    assert len(files) >= 8
    files.remove(ROOT / "src/cooper_rl/__init__.py")
    for path in files:
        body = ast.parse(path.read_text(encoding="utf-8")).body
        assert not [node for node in body if not isinstance(getattr(node, "value", None), ast.Constant)], path


@pytest.mark.parametrize(
    "module",
    [
        "cooper_rl.config.load",
        "cooper_rl.__main__",
        "cooper_rl.stages.collect_problems",
        "cooper_rl.stages.label_completions",
        "pipelines.__main__",
    ],
)
def test_a_module_that_needs_no_model_imports_neither_torch_nor_kfp(module: str) -> None:
    code = (
        f"import sys, {module}\n"
        "heavy = {'torch', 'transformers', 'kfp'} & set(sys.modules)\n"
        "sys.exit(f'imports {sorted(heavy)}' if heavy else 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("preset", preset_names())
def test_every_preset_loads(preset: str) -> None:
    assert load(preset).cooper.steps >= 1


def test_the_import_contract_holds() -> None:
    done = subprocess.run(
        [str(Path(sys.executable).parent / "lint-imports"), "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_every_requirement_is_pinned_and_none_brings_cuda() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+", pin) for pin in pins)
    names = {_normal(pin.partition("==")[0]) for pin in pins}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = [*project["dependencies"], *chain(*project["optional-dependencies"].values())]
    wanted = {_normal(re.split(r"[\[<>=!~; ]", requirement)[0]) for requirement in asked} - {"cooper-rl"}
    wanted -= {"vllm"}  # rules over its own environment: images/gpu/requirements.txt, requirements-vllm.txt
    assert wanted <= names
    assert "torch==2.13.0" in pins
    assert not [name for name in names if name.startswith(("nvidia", "cuda", "triton"))]


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
