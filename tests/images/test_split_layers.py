"""The environment of an image in layers: everything once, the same for the same packages."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent.parent / "images" / "split_layers"
PACKAGES = "opt/env/lib/python3.11/site-packages"


def make_environment(folder: Path) -> Path:
    environment = folder / "opt" / "env"
    packages = folder / PACKAGES
    for name in ("nvidia/cublas", "torch/lib", "torch-2.13.0.dist-info", "small"):
        (packages / name).mkdir(parents=True)
    (packages / "nvidia/cublas/lib.so").write_bytes(b"cuda")
    (packages / "torch/__init__.py").write_text("import small\n")
    (packages / "torch-2.13.0.dist-info/RECORD").write_text("")
    (packages / "small/__init__.py").write_text("ANSWER = 42\n")
    (environment / "bin").mkdir()
    (environment / "bin/python").symlink_to(sys.executable)
    (environment / "lib64").symlink_to("lib")
    return environment


def split(environment: Path, layers: Path, *patterns: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, SCRIPT, environment, layers, *patterns], capture_output=True, text=True, check=False
    )


def files_of(folder: Path) -> dict[str, bytes]:
    found = (path for path in folder.rglob("*") if not path.is_dir() or path.is_symlink())
    return {
        str(path.relative_to(folder)): str(path.readlink()).encode()
        if path.is_symlink()
        else path.read_bytes()
        for path in found
    }


def test_layers_hold_every_file_once_and_bytecode_that_needs_no_source_time(tmp_path: Path) -> None:
    environment = make_environment(tmp_path)
    before = files_of(environment)
    done = split(environment, tmp_path / "layers", "cuda=nvidia*", "torch=torch,torch-*")
    assert done.returncode == 0, done.stderr
    place = environment.relative_to("/")
    layers = {name: files_of(tmp_path / "layers" / name / place) for name in ("cuda", "torch", "rest")}
    together = [file for files in layers.values() for file in files if "__pycache__" not in file]
    assert sorted(together) == sorted(before)
    assert {
        file: content for files in layers.values() for file, content in files.items()
    }.items() >= before.items()
    base = "lib/python3.11/site-packages"
    assert set(layers["cuda"]) == {f"{base}/nvidia/cublas/lib.so"}
    assert f"{base}/torch-2.13.0.dist-info/RECORD" in layers["torch"]
    assert {"bin/python", "lib64", f"{base}/small/__init__.py"} <= set(layers["rest"])
    assert not environment.exists()
    (bytecode,) = (path for file, path in layers["rest"].items() if "__pycache__" in file)
    assert bytecode[4:8] == (0b01).to_bytes(4, "little")  # PEP 552: hash-based, unchecked


def test_the_same_packages_are_the_same_layers(tmp_path: Path) -> None:
    for name in ("first", "second"):
        assert (
            split(make_environment(tmp_path / name), tmp_path / name / "layers", "cuda=nvidia*").returncode
            == 0
        )
    trees = []
    for name in ("first", "second"):
        top = tmp_path / name / "layers"
        trees.append(
            {
                (str(path.relative_to(top)).replace(f"{tmp_path.name}/{name}", ""), path.lstat().st_mtime)
                for layer in ("cuda", "rest")
                for path in (top / layer).rglob("*")
            }
        )
    assert trees[0] == trees[1]
    assert {time for _, time in trees[0]} == {946684800}


def test_a_pattern_that_fits_nothing_is_refused(tmp_path: Path) -> None:
    done = split(make_environment(tmp_path), tmp_path / "layers", "jax=jax*")
    assert done.returncode == 1
    assert "split_layers: nothing in the environment is of the layer jax: ['jax*']" in done.stderr


@pytest.mark.parametrize("image", ["cpu", "gpu"])
def test_each_layer_of_an_image_is_of_packages_in_its_lock(image: str) -> None:
    """A renamed package would fail the build; this fails before it."""
    folder = SCRIPT.parent / image
    text = (folder / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    command = next(line for line in text.splitlines() if line.startswith("RUN /build/split_layers"))
    locked = {line.partition("==")[0].replace("-", "_") for line in (folder / "requirements.txt").open()}
    locked |= {"torch"}
    for word in command.split()[4:]:
        names = {glob.rstrip("-_*") for glob in word.partition("=")[2].split(",")}
        assert any(
            package == name or package.startswith(f"{name}_") for name in names for package in locked
        ), word
