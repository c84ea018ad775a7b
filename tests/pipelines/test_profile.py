"""Profiles: what ships is valid, and what is wrong is refused with its place."""

from pathlib import Path

import pytest
import yaml

from components.images import CPU_IMAGE, GPU_IMAGE
from cooper_rl.errors import ConfigError
from pipelines.compile import compile_pipeline, read_compiled
from pipelines.profile import FOLDER, Toleration, load_profile


@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.toml")))
def test_a_profile_that_ships_is_valid(name: str) -> None:
    load_profile(name)


def test_the_local_profile_asks_for_nothing() -> None:
    local = load_profile("local")
    assert (local.gpu, local.cpu, local.retry, local.secrets) == (None, None, None, ())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("presett = 'laptop'", "presett: Extra inputs are not permitted"),
        ("overrides = ['cooper.stepz=1']", "cooper.stepz: unknown key; did you mean 'steps'"),
        ("gpu_image = 'registry:5000/gpu'", "image 'registry:5000/gpu' is not pinned: add a version"),
        ("gpu_image = 'gpu:latest'", "image 'gpu:latest' is not pinned"),
        ("gpu_image = 'gpu@sha256:abc'", "is not pinned"),
        ("[hours]\ntrain_coper = 3", "'train_coper' is no stage; stages are check_settings"),
        ("[hours]\ntrain_cooper = 3", "hours limit the tries of [retry], which is missing; add the section"),
        ("[gpu]\nmemory = '3 GB'", "gpu.memory: String should match pattern"),
        ("[cpu]\nmemory = '1.5Gi'", "cpu.memory: String should match pattern"),
        ("[cpu]\nmemory = '500m'", "cpu.memory: String should match pattern"),
        ("[cpu]\nmemory = '16000000k'", "cpu.memory: String should match pattern"),
        ("[cpu]\ncpu = '4Gi'", "cpu.cpu: String should match pattern"),
        ("[hours]\ntrain_cooper = -1\n[retry]", "hours.train_cooper: Input should be greater than 0"),
        ("[hours]\ntrain_cooper = 1e300\n[retry]", "hours.train_cooper: Input should be less than or equal"),
        ("[retry]\nattempts = 99999999999", "retry.attempts: Input should be less than or equal to 100"),
        ("[retry]\nattempts = true", "retry.attempts: Value error, is a number, and true is none"),
        (
            "[[gpu.tolerations]]\nkey = 'nvidia.com/gpu'\nvalue = 'present'",
            "value='present' with the operator Exists, which Kubernetes refuses: set operator = \"Equal\"",
        ),
        ("preset = 'labtop'", "unknown preset 'labtop'; did you mean 'laptop'?"),
        ("[[secrets]]\nname = 's'\nenv = {}", "secrets.0.env: Dictionary should have at least 1 item"),
        ("preset = ", "not readable as TOML"),
        ("preset = " + 5000 * "[", "not readable as TOML"),
    ],
)
def test_a_wrong_profile_is_refused_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as refused:
        load_profile(str(path))
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("overrides", "starts_jobs"),
    [
        ([], False),
        (["launch.kind=trainjob"], True),
        (['launch={ kind = "trainjob" }'], True),
        (['launch.kind = "trainjob"', "cooper.steps=3"], True),
        (["launch.kind=trainjob", "launch.kind=here"], False),
    ],
)
def test_a_task_that_only_waits_for_a_job_holds_no_gpu(
    tmp_path: Path, overrides: list[str], starts_jobs: bool
) -> None:
    profile = load_profile("cluster")
    # Built by hand: what a TrainJob needs besides is checked with the preset, which is not the subject here.
    profile = profile.model_copy(update={"overrides": (*profile.overrides, *overrides)})
    assert profile.starts_jobs == starts_jobs
    compiled = compile_pipeline("cooper", tmp_path, profile=profile, iterations=1)
    executors = read_compiled(compiled)["deploymentSpec"]["executors"]
    train, evaluate = (executors[f"exec-{name}"]["container"] for name in ("train-cooper", "evaluate-policy"))
    assert (train["image"] == CPU_IMAGE) == starts_jobs
    assert ("accelerator" in train["resources"]) == (not starts_jobs)
    assert evaluate["image"] == GPU_IMAGE
    assert "accelerator" in evaluate["resources"]


def test_tasks_without_a_gpu_go_to_the_nodes_that_the_profile_names(tmp_path: Path) -> None:
    """The images are for x86-64: on a cluster that has other nodes too, a task must not start there."""
    profile = load_profile("cluster")
    assert profile.cpu is not None
    toleration = Toleration(key="batch", effect="NoSchedule")
    pool = profile.cpu.model_copy(update={"tolerations": (toleration,)})
    compiled = compile_pipeline(
        "end_to_end", tmp_path, profile=profile.model_copy(update={"cpu": pool}), iterations=1
    )
    specification, platform = yaml.safe_load_all(compiled.read_text())
    executors = specification["deploymentSpec"]["executors"]
    configs = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    on_cpus = {
        name for name, one in executors.items() if "accelerator" not in one["container"].get("resources", {})
    }
    assert len(on_cpus) > 4
    for name in on_cpus:
        assert configs[name]["nodeSelector"]["labels"] == {"kubernetes.io/arch": "amd64"}
        assert configs[name]["tolerations"] == [
            {"key": "batch", "operator": "Exists", "effect": "NoSchedule"}
        ]
    assert all("nodeSelector" not in configs[name] for name in executors.keys() - on_cpus)


@pytest.mark.parametrize(
    ("cpu", "memory"),
    [("4", "16Gi"), ("1.5", "16000000000"), ("500m", "512Mi"), ("2", "16000000Ki"), ("2", "1Ti")],
)
def test_whatever_a_profile_may_ask_for_can_be_compiled(tmp_path: Path, cpu: str, memory: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(f"[cpu]\ncpu = '{cpu}'\nmemory = '{memory}'\n")
    compiled = compile_pipeline("verify_rm", tmp_path, profile=load_profile(str(path)), iterations=1)
    executors = read_compiled(compiled)["deploymentSpec"]["executors"]
    resources = executors["exec-check-settings"]["container"]["resources"]
    assert (resources["resourceCpuLimit"], resources["resourceMemoryLimit"]) == (cpu, memory)


def test_an_unknown_profile_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"profile 'clster': use one of \['cluster', 'demo', 'local'\] or the path"
    ):
        load_profile("clster")
