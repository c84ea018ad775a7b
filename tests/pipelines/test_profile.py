"""Profiles: what ships is valid, and what is wrong is refused with its place."""

import json
import re
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
        ("gpu_image = 'gpu@sha256:abc'", "gpu_image: is no reference to an image: write [host[:port]/]name"),
        ("[hours]\ntrain_coper = 3", "'train_coper' is no stage; stages are check_settings"),
        ("[hours]\ntrain_cooper = 3", "hours limit the tries of [retry], which is missing; add the section"),
        (
            "[gpu]\nmemory = '3 GB'",
            "gpu.memory: is no quantity: write a number and perhaps a unit, such as 4",
        ),
        (
            "[cpu]\nmemory = '16'",
            "cpu.memory: is 16 bytes, in which no task can work: write its unit, at lea",
        ),
        ("[cpu]\nmemory = '16K'", "cpu.memory: is no quantity"),
        ("[gpu]\nshared_memory = '63Mi'", "gpu.shared_memory: is 66060288 bytes, in which no task can work"),
        (
            "[gpu]\nmemory = '16Gi'\nshared_memory = '17Gi'",
            "gpu: shared_memory='17Gi' is more than memory='16",
        ),
        (
            "[cpu]\ncpu = '0'",
            "cpu.cpu: is no number of CPUs that a task can have: write more than 0, such as",
        ),
        ("[cpu]\ncpu = '1e25'", "cpu.cpu: is no number of CPUs that a task can have"),
        ("[cpu]\ncpu = 4", """cpu.cpu: Input should be a valid string, write it in quotes: "4" (found 4)"""),
        (
            "[cpu]\nnode_selector = { gpu = true }",
            """gpu: Input should be a valid string, write it in quotes: "t""",
        ),
        (
            "[hours]\nreport = 0.0001\n[retry]",
            "hours.report: is less than a second; write hours, of which 0.5",
        ),
        ("[hours]\nreport = true\n[retry]", "hours: is a number, and true is none"),
        ("seeds = [0, true]", "seeds: is a number, and true is none"),
        (
            "[hours]\ntrain_cooper = -1\n[retry]",
            "hours.train_cooper: Input should be greater than 0 (found -1)",
        ),
        ("[hours]\ntrain_cooper = 1e300\n[retry]", "hours.train_cooper: Input should be less than or equal"),
        ("[retry]\nattempts = 99999999999", "retry.attempts: Input should be less than or equal to 100"),
        ("[retry]\nattempts = true", "retry.attempts: is a number, and true is none (found True)"),
        (
            "[[gpu.tolerations]]\nkey = 'nvidia.com/gpu'\nvalue = 'present'",
            "value='present' with the operator Exists, which Kubernetes refuses: set operator = \"Equal\"",
        ),
        (
            "[[gpu.tolerations]]\nkey = ''\noperator = 'Equal'",
            "key='' is every taint, which Kubernetes takes with the operator Exists alone: name the ta",
        ),
        (
            "[[secrets]]\nname = 's'\nenv = { a = 'KEY' }\n[[secrets]]\nname = 't'\nenv = { b = 'KEY' }\n"
            "tasks = ['report']",
            "secrets.1.env.b='KEY': secrets.0.env.a sets this variable of report too; name another variable",
        ),
        (
            "[[secrets]]\nname = 's'\nenv = { a = 'KEY', b = 'KEY' }",
            "secrets.0.env.b='KEY': secrets.0.env.a sets this variable of check_settings too",
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


PLACES = {
    "gpu.queue": "[gpu]\nqueue = %s",
    "gpu.type": "[gpu]\ntype = %s",
    "gpu.node_selector": "[gpu.node_selector]\n%s = 'a'",
    "gpu.node_selector.a": "[gpu.node_selector]\na = %s",
    "gpu.tolerations.0.key": "[[gpu.tolerations]]\nkey = %s",
    "gpu.tolerations.0.value": "[[gpu.tolerations]]\nkey = 'a'\noperator = 'Equal'\nvalue = %s",
    "image_pull_secrets.0": "image_pull_secrets = [%s]",
    "secrets.0.name": "[[secrets]]\nname = %s\nenv = { a = 'A' }",
    "secrets.0.env": "[[secrets]]\nname = 's'\nenv = { %s = 'A' }",
    "secrets.0.env.a": "[[secrets]]\nname = 's'\nenv = { a = %s }",
    "cpu_image": "cpu_image = %s",
    "cpu.cpu": "[cpu]\ncpu = %s",
    "cpu.memory": "[cpu]\nmemory = %s",
}
"""Key of a profile -> the profile, around a value or a key of this table."""
DIGEST = f"sha256:{64 * 'a'}"
TEXTS = {
    "gpu.queue": ({"cooper-rl", "a.b", "9", 63 * "a"}, {"", "My Queue", "a_b", "-a", "a-", "a..b", 64 * "a"}),
    "gpu.type": (
        {"nvidia.com/gpu", "nvidia.com/mig-1g.5gb", "amd.com/gpu", "a/B_c"},
        {
            "gpu",
            "nvidia.com gpu",
            "nvidia.com/",
            "/gpu",
            "Nvidia.com/gpu",
            "requests.nvidia.com/gpu",
            "a/b/c",
        },
    ),
    "gpu.node_selector": (
        {"a", "kubernetes.io/arch", "A_b.c", f"{253 * 'a'}/{63 * 'b'}"},
        {"", "a b", "/a", "a/", "a/b/c", "-a", 64 * "a", f"{254 * 'a'}/b", "K8s.io/a"},
    ),
    "gpu.node_selector.a": ({"", "amd64", "A_b.c", 63 * "a"}, {"a b", "a/b", "-a", "a.", 64 * "a", "a\n"}),
    "gpu.tolerations.0.value": ({"", "present", "A_b.c"}, {"a b", "-a", 64 * "a"}),
    "gpu.tolerations.0.key": ({"", "nvidia.com/gpu", "batch"}, {"a b", "a/b/c", "é"}),
    "image_pull_secrets.0": ({"registry", "a.b", 253 * "a"}, {"", "Registry", "a_b", "a/b", 254 * "a"}),
    "secrets.0.name": ({"object-store-train", "a.b", 253 * "a"}, {"", "My", "a_b", "a ", 254 * "a"}),
    "secrets.0.env": ({"access_key", ".netrc", "a.b", "-a"}, {"", "a b", "a/b", ".", "..a", 254 * "a"}),
    "secrets.0.env.a": ({"AWS_KEY", "_a", "a.b", "a-b"}, {"", "1A", "MY VAR", "A=B", "A\n", "é"}),
    "cpu_image": (
        {
            "cooper-rl-cpu:0.2.0",
            "localhost:5000/a/b__c:V_1",
            "Registry.example:5000/a/b-c.d:1",
            "[2001:db8::1]:5000/a:1",
            f"registry.example/a@{DIGEST}",
            f"registry.example:5000/a:1@{DIGEST}",
            f"a@sha512:{128 * 'b'}",
        },
        {
            "",
            "a:1 ",
            "a b:1",
            "registry.example/Cooper:1",
            "https://registry.example/a:1",
            "registry.example//a:1",
            f"a:{129 * '1'}",
            "a:1:2",
            "a@sha256:1",
        },
    ),
    "cpu.cpu": (
        {"4", "1.5", "500m", "1e3", "1E3", "+4", ".5", "4.", "1k", "0.1", "1u"},
        {
            "",
            "0",
            "0m",
            "-1",
            "4 ",
            " 4",
            "4Gb",
            "1e",
            "e3",
            "1_000",
            "NaN",
            "m",
            "1.5.1",
            "four",
            "4Gi",
            "10001",
        },
    ),
    "cpu.memory": (
        {"16Gi", "0.5Gi", "1.5G", "64Mi", "1e9", "16000000000", "16000000k", "1Ti", "67108864000m", "1E"},
        {"", "16", "500m", "16K", "16gi", "16GiB", "16 Gi", "-16Gi", "63Mi", "8Ei", "1e999", "0"},
    ),
}
"""Key of a profile -> texts that Kubernetes takes, and texts that are refused."""


def write_profile(folder: Path, key: str, value: str) -> str:
    path = folder / "mine.toml"
    path.write_text(PLACES[key] % json.dumps(value), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(("key", "value"), [(key, text) for key in TEXTS for text in sorted(TEXTS[key][0])])
def test_what_kubernetes_takes_is_taken_and_can_be_compiled(tmp_path: Path, key: str, value: str) -> None:
    compile_pipeline(
        "verify_rm", tmp_path, profile=load_profile(write_profile(tmp_path, key, value)), iterations=1
    )


@pytest.mark.parametrize(("key", "value"), [(key, text) for key in TEXTS for text in sorted(TEXTS[key][1])])
def test_what_kubernetes_refuses_is_refused_with_file_key_and_value(
    tmp_path: Path, key: str, value: str
) -> None:
    path = write_profile(tmp_path, key, value)
    with pytest.raises(ConfigError) as refused:
        load_profile(path)
    message = str(refused.value)
    assert message.startswith(f"profile {path!r}: {key}: is ")
    assert re.search(r": (write|use) ", message)
    assert f"(found {value!r})" in message


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
def test_what_kfp_reads_is_compiled_as_it_is_written(tmp_path: Path, cpu: str, memory: str) -> None:
    assert compiled_resources(tmp_path, cpu, memory) == (cpu, memory)


@pytest.mark.parametrize(
    ("cpu", "memory", "found"),
    [
        ("1e3", "0.5Gi", ("1000000m", "536870912")),
        ("4.", "1e9", ("4000m", "1000000000")),
        ("1u", "16000000k", ("1m", "16000000000")),
        ("+2", "67108864001m", ("2000m", "67108865")),
    ],
)
def test_what_kubernetes_alone_reads_is_compiled_as_kfp_reads_it(
    tmp_path: Path, cpu: str, memory: str, found: tuple[str, str]
) -> None:
    """Worked out by hand: half of 2**30; a millionth of a CPU and a thousandth of a byte are rounded up, as
    Kubernetes does."""
    assert compiled_resources(tmp_path, cpu, memory) == found


def compiled_resources(tmp_path: Path, cpu: str, memory: str) -> tuple[str, str]:
    path = tmp_path / "mine.toml"
    path.write_text(f"[cpu]\ncpu = '{cpu}'\nmemory = '{memory}'\n")
    compiled = compile_pipeline("verify_rm", tmp_path, profile=load_profile(str(path)), iterations=1)
    executors = read_compiled(compiled)["deploymentSpec"]["executors"]
    resources = executors["exec-check-settings"]["container"]["resources"]
    return resources["resourceCpuLimit"], resources["resourceMemoryLimit"]


def test_an_unknown_profile_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"profile 'clster': use one of \['cluster', 'demo', 'local'\] or the path"
    ):
        load_profile("clster")
