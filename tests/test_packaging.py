"""The package as a whole: what importing it costs, how its floors hold, what it pins."""

import ast
import os
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
    """`stages` has one for each stage, and the table of stages says which."""
    rooms = {path.parent for path in (ROOT / "src").rglob("__init__.py")} - {ROOT / "src/cooper_rl/stages"}
    for folder in [ROOT / "pipelines", *rooms]:
        assert len(list(folder.glob("*.py"))) <= 16, folder  # the front door does not count


FOREIGN = {
    "_client", "client", "_zero", "aten", "trainer", "executor", "queue", "get_input_embeddings",
    "AutoModelForSequenceClassification", "writer", "parser",
}  # fmt: skip
"""Whose private names are used: libraries of others, for want of a public way."""
LEFT_MODULES = {"benchmarks._labelled", "torch._subclasses.fake_tensor"}
"""Of benchmarks: what several of them share, tested in the room that it measures."""
LEFT = {
    ("test_engine_vllm.py", "_llm"),  # vLLM's own object, of which the engine shows nothing
    ("test_engine_vllm.py", "_sampling_params"),
    ("kill_service.py", "_line"),  # a kill between two writes, which no front door shows
    ("test_promote.py", "_store"),
}
"""Ours that tests still look at."""


def is_private(name: str) -> bool:
    is_of_tuple = name in {"_replace", "_asdict", "_fields"}  # public in spite of their spelling
    return name.startswith("_") and not name.startswith("__") and not is_of_tuple


@pytest.mark.parametrize("folder", [*SOURCES, "tests"])
def test_a_name_with_an_underscore_stays_in_its_package(folder: str) -> None:
    for path in sorted((ROOT / folder).rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        own = ".".join(path.relative_to(ROOT / "src" if folder.startswith("src") else ROOT).parts[:-1])
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                names = [part for alias in node.names for part in alias.name.split(".")]
                assert not any(map(is_private, names)), f"{path}: {names}"
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                parts = [*node.module.split("."), *(alias.name for alias in node.names)]
                is_left = node.module in LEFT_MODULES
                if any(map(is_private, parts)) and not is_left:
                    assert node.module == own or node.module.startswith(f"{own}."), f"{path}: {parts}"


@pytest.mark.parametrize("folder", [*SOURCES, "tests"])
def test_a_private_attribute_is_used_by_its_own_object(folder: str) -> None:
    """Of `self`, or of another object of the class in whose module it is set."""
    for path in sorted((ROOT / folder).rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        attributes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
        made = {node.attr for node in attributes if isinstance(node.ctx, ast.Store)}
        made |= {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
        for node in attributes:
            if not is_private(node.attr) or node.attr in made or node.attr == "_exit":
                continue
            owner = ast.unparse(node.value)
            if owner in ("self", "cls") or owner.startswith("super("):
                continue
            known = (path.name, node.attr) in LEFT or bool(set(re.findall(r"\w+", owner)) & FOREIGN)
            assert known, f"{path}:{node.lineno}: {owner}.{node.attr}"


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


def test_both_ends_of_torchs_range_are_tested() -> None:
    """`make test-torch`: the oldest version, and the one before the first that is refused."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (asked,) = (each for each in project["dependencies"] if re.match(r"torch\b", each))
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (ends,) = re.findall(r"^TORCH_ENDS := 2\.(\d+)\.0 2\.(\d+)\.0$", makefile, re.MULTILINE)
    oldest, newest = map(int, ends)
    assert asked == f"torch>=2.{oldest},<2.{newest + 1}"


def _program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def _make(environment: Path, *words: str, **variables: str) -> tuple[int, str]:
    """Status, and what it says. No variable of the `make` that runs the tests reaches it."""
    done = subprocess.run(
        ["make", f"VENV={environment}", *words],
        env={"PATH": os.environ["PATH"], **variables},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_make_refuses_a_python_that_is_too_old_before_it_installs_anything(tmp_path: Path) -> None:
    """This Python, which takes itself for an older one."""
    takes_itself = (
        'import sys; sys.version = "3.10.13 (main)"; sys.version_info = (3, 10, 13); exec(sys.argv[1])'
    )
    old = _program(tmp_path / "python3.10", f"exec {sys.executable} -c '{takes_itself}' \"$2\"")
    status, said = _make(tmp_path / "venv", "demo", f"PYTHON={old}")
    assert status == 2
    remedy = "Try: make PYTHON=/path/to/python3.11"
    assert f"Cooper-RL needs Python 3.11 or later; {old} is 3.10.13. {remedy}\n" in said
    assert list(tmp_path.iterdir()) == [old]


def test_make_refuses_another_python_than_the_environment_has(tmp_path: Path) -> None:
    """It would run the one that the environment was made with, and not say so."""
    environment = tmp_path / "venv"
    _program(environment / "bin/python", "echo 3.9")
    (environment / ".created").touch()
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    status, said = _make(environment, "interpreter", f"PYTHON={sys.executable}")
    assert status == 2
    remedy = f"Try: make VENV=.venv-{here} PYTHON={sys.executable}"
    assert f"{environment} holds Python 3.9, and PYTHON={sys.executable} is {here}. {remedy}" in said
    assert _make(environment, "interpreter")[0] == 0  # nothing was asked for
    _program(environment / "bin/python", f"echo {here}")
    assert _make(environment, "interpreter", PYTHON=sys.executable)[0] == 0


def test_make_finds_a_python_that_runs_and_is_new_enough(tmp_path: Path) -> None:
    """On PATH: one that does not run, as pyenv's, one that is too old, and one that is right."""
    _program(tmp_path / "bin/python3.11", "exit 127")
    _program(tmp_path / "bin/python3.12", f"exec {sys.executable} -c 'import sys; sys.exit(1)'")
    right = _program(tmp_path / "bin/python3.13", f'exec {sys.executable} "$@"')
    path = f"{tmp_path / 'bin'}:/usr/bin:/bin"
    created = tmp_path / "venv" / ".created"
    status, said = _make(tmp_path / "venv", "--dry-run", str(created), PATH=path)
    assert status == 0, said
    assert f"{right} -m venv {tmp_path / 'venv'}\n" in said


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_the_map_for_contributors_has_every_room_and_no_other() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (table,) = re.findall(r"^\| room \| holds \|\n\|---\|---\|\n((?:\|.*\n)+)", text, re.MULTILINE)
    named = re.findall(r"`(\w+)`", "".join(row.split("|")[1] for row in table.splitlines()))
    package = ROOT / "src/cooper_rl"
    rooms = {path.parent.name for path in package.glob("*/__init__.py")} - {"presets"}
    modules = {path.stem for path in package.glob("*.py")} - {"__init__"}
    assert sorted(named) == sorted(rooms | modules)
    for folder in re.findall(r"`?(tests/[\w/.]+\w)", text):
        assert (ROOT / folder).exists(), folder
