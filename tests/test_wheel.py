"""What `pip install` of the wheel gives, away from any clone."""

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from cooper_rl.cli.pipelines import find_pipelines
from cooper_rl.errors import ConfigError
from pipelines.options import NAMES
from tests.small_run import small_run

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from the files that git knows, as `make wheel` does."""
    source, built = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    names = run(["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT).splitlines()
    for name in names:
        if name.startswith(("src/", "components/", "pipelines/")) or "/" not in name:
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(built), str(source)]
    run(build, cwd=source)  # by way of the source distribution, which must be whole too
    (found,) = built.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def programs(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment with the wheel; the other packages are those of this one, which is no part of the
    clone."""
    place = tmp_path_factory.mktemp("environment")
    run([sys.executable, "-m", "venv", "--without-pip", str(place)], cwd=place)
    python = place / "bin" / "python"
    run([sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", str(wheel)], cwd=place)
    (own,) = place.glob("lib/python3*/site-packages")
    (own / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return place / "bin"


def run(command: list[str], *, cwd: Path, status: int = 0) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        command,
        cwd=cwd,
        env=environment | {"PYTHONNOUSERSITE": "1"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == status, done.stderr
    return done.stdout + done.stderr


def test_the_wheel_takes_no_name_but_its_own(wheel: Path) -> None:
    names = {name.partition("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {name for name in names if not name.endswith(".dist-info")} == {"cooper_rl"}


def test_the_wheel_holds_what_the_clone_holds(wheel: Path) -> None:
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    paths = run(["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT).splitlines()
    expected = {path.removeprefix("src/") for path in paths if path.startswith("src/")}
    expected |= {
        f"cooper_rl/kubeflow/{path}" for path in paths if path.startswith(("components/", "pipelines/"))
    }
    assert held == expected


def test_pipelines_compile_outside_a_clone(programs: Path, tmp_path: Path) -> None:
    """The same bytes as in the clone."""
    shown = run([str(programs / "cooper-rl-pipelines"), "compile", "--output", "out"], cwd=tmp_path)
    assert shown.split() == [f"out/{path.name}" for path in map(Path, shown.split())]
    for path in (tmp_path / "out").iterdir():
        assert path.read_bytes() == (ROOT / "tests" / "golden" / path.name).read_bytes()
    assert len(list((tmp_path / "out").iterdir())) == len(NAMES)


def test_what_was_installed_is_what_runs(programs: Path, tmp_path: Path) -> None:
    code = "import cooper_rl, importlib.util as u; print(cooper_rl.__file__, u.find_spec('pipelines'))"
    place, pipelines = run([str(programs / "python"), "-c", code], cwd=tmp_path).split()
    assert Path(place).is_relative_to(programs.parent)
    assert pipelines == "None"
    shown = run([str(programs / "cooper-rl-pipelines"), "--help"], cwd=tmp_path)
    assert shown.startswith("usage: cooper-rl-pipelines")


@pytest.mark.slow
def test_the_whole_pipeline_runs_outside_a_clone(programs: Path, tmp_path: Path) -> None:
    """The laptop preset at its smallest: stages run as processes of the new environment."""
    run([str(programs / "cooper-rl-pipelines"), *small_run(Path("run"))], cwd=tmp_path)
    assert list((tmp_path / "run").rglob("config.json"))


def test_an_installation_without_pipelines_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="this installation was built without them; install the wheel"):
        find_pipelines(tmp_path / "site-packages" / "cooper_rl")
    assert find_pipelines(ROOT / "src" / "cooper_rl") == ROOT
