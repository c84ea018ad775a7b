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


def test_every_room_has_a_front_door_that_says_what_is_in_it() -> None:
    """A docstring, and code only where the room has a table: `import` of a room stays cheap."""
    with_code = {ROOT / "src/cooper_rl/__init__.py", ROOT / "src/cooper_rl/stages/__init__.py"}
    rooms = [path for path in (ROOT / "src/cooper_rl").rglob("__init__.py") if "presets" not in path.parts]
    assert len(rooms) >= 20
    for path in rooms:
        module = ast.parse(path.read_text(encoding="utf-8"))
        assert ast.get_docstring(module), path
        assert path in with_code or len(module.body) == 1, path


def test_a_front_door_names_every_module_of_its_room() -> None:
    for door in (ROOT / "src/cooper_rl").rglob("__init__.py"):
        if door.parent == ROOT / "src/cooper_rl":
            continue
        text = ast.get_docstring(ast.parse(door.read_text(encoding="utf-8"))) or ""
        modules = {path.stem for path in door.parent.glob("*.py")} - {"__init__"}
        modules |= {path.parent.name for path in door.parent.glob("*/__init__.py")}
        assert {name for name in modules if not re.search(rf"\b{name}\b", text)} == set(), door


def test_no_room_is_larger_than_15_modules() -> None:
    for folder in [ROOT / "pipelines", *(path.parent for path in (ROOT / "src").rglob("__init__.py"))]:
        assert len(list(folder.glob("*.py"))) <= 16, folder  # the front door does not count


def test_a_name_with_an_underscore_stays_in_its_package() -> None:
    for folder in SOURCES:
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if not isinstance(node, ast.ImportFrom) or node.module is None:
                    continue
                own = ".".join(
                    path.relative_to(ROOT / "src" if folder.startswith("src") else ROOT).parts[:-1]
                )
                parts = [*node.module.split("."), *(alias.name for alias in node.names)]
                if any(part.startswith("_") and not part.startswith("__") for part in parts):
                    assert node.module == own or node.module.startswith(f"{own}."), f"{path}: {parts}"


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


def test_the_client_of_a_reward_service_needs_httpx_alone() -> None:
    """A trainer's worker installs the wheel with --no-deps, and httpx."""
    code = (
        "import sys\n"
        "before = set(sys.modules)\n"
        "from cooper_rl import RewardClient\n"
        "roots = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "print(sorted(roots - set(sys.stdlib_module_names)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    found = {name for name in ast.literal_eval(done.stdout) if not name.startswith("_")}
    httpx = {"anyio", "certifi", "h11", "httpcore", "httpx", "idna", "sniffio", "typing_extensions"}
    assert found - {"cooper_rl"} <= httpx | {"click", "rich", "pygments"}, found  # which httpx takes if there


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
