"""The paper's recipe as presets: the published numbers, and a source beside every value."""

import re
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

import pytest

from cooper_rl.__main__ import main
from cooper_rl.config.load import load

DOCS = Path(__file__).parents[1] / "docs"
PRESETS = ["paper", "llama", "single_gpu"]


def read_preset(name: str) -> str:
    return (resources.files("cooper_rl") / "presets" / f"{name}.toml").read_text()


@pytest.mark.parametrize("preset", PRESETS)
def test_the_published_numbers_are_the_papers(preset: str) -> None:
    """METHOD: lr 2e-5, decay .01, 3 epochs; policy 1e-6, clip .2, KL 1e-3; reward update 1e-5; .7/.95/8."""
    config = load(preset)
    assert (config.verify_rm.lr, config.verify_rm.weight_decay, config.verify_rm.num_epochs) == (
        2e-5,
        0.01,
        3,
    )
    assert config.models.backbone == "Qwen/Qwen2.5-Math-1.5B-Instruct"
    cooper = config.cooper
    assert (cooper.policy.lr, cooper.policy.clip_epsilon, cooper.policy.kl_coefficient) == (1e-6, 0.2, 1e-3)
    assert (cooper.reward.lr, cooper.group_size, cooper.steps) == (1e-5, 16, 180)
    evaluation = config.evaluation
    assert (evaluation.generation.temperature, evaluation.generation.top_p) == (0.7, 0.95)
    assert evaluation.samples_per_problem == 8


@pytest.mark.parametrize(("preset", "count"), [("paper", 42), ("llama", 1), ("single_gpu", 4)])
def test_every_value_of_a_preset_has_its_source(preset: str, count: int) -> None:
    lines = read_preset(preset).splitlines()
    values = [line for line in lines if " = " in line and not line.startswith(("#", "extends"))]
    assert len(values) == count
    without = [line for line in values if "# " not in line]
    assert all(line.startswith(("reward", "update_verify_rm", "base_url")) for line in without)


def test_the_other_presets_are_the_paper_but_for_what_they_say() -> None:
    llama = load("paper", ["models.policy=meta-llama/Llama-3.2-1B-Instruct"])
    assert load("llama") == llama
    values = ["cooper.max_tokens_per_batch=16384", "cooper.gradient_checkpointing=true"]
    values += ["verify_rm.num_decoys=23"]
    assert load("single_gpu") == load("paper", values)


QWEN = """{"model_type": "qwen2", "num_hidden_layers": 28, "hidden_size": 1536, "intermediate_size": 8960,
"vocab_size": 151936, "num_attention_heads": 12, "num_key_value_heads": 2, "tie_word_embeddings": true}"""


def test_single_gpu_fits_on_80_gb_and_not_on_40(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    """N = 1,543,714,304 for both but for VerifyRM's 1,536 more: 12N for each that rests and 2N of the
    reference are 26N = 37.38 GiB, and 2 bytes more for each of its 233,373,696 embeddings and 87,552 norms
    .43; vLLM has .4 of the card and 2 GiB are reserved: 71.81 of 80, 55.81 of 40.

    With the Hugging Face engine 2N are its copy, 4N gradients and 2N rounded weights, 34N + .43 = 49.31 GiB;
    activations are 16384 * (107,520 + 28 * 4 * 1536) bytes = 4.27 GiB, logits 0.75, the head's sum 4 bytes
    for each embedding, .87, and 2 reserved make 57.20."""
    (tmp_path / "config.json").write_text(QWEN)
    models = ["--policy", str(tmp_path), "--verify-rm", str(tmp_path), "--preset", "single_gpu"]
    assert main(["plan", *models, "--gpu-gib", "80"]) == 0
    shown = capsys.readouterr().out
    assert "most in the phase 'rollouts'" in shown
    assert shown.splitlines()[-1].split() == ["together", "71.81", "GiB"]
    assert main(["plan", *models, "--gpu-gib", "40"]) == 2
    assert "needs about 55.8 GiB of a GPU that has 40.0 GiB: lower engine.gpu" in capsys.readouterr().err
    assert main(["plan", *models, "--gpu-gib", "80", "--set", "engine.kind=hf"]) == 0
    shown = capsys.readouterr().out
    assert "most in the phase 'update of the policy'" in shown
    assert shown.splitlines()[-1].split() == ["together", "57.20", "GiB"]


def test_a_kv_cache_of_a_size_of_its_own_counts_whatever_the_share_is(tmp_path, capsys) -> None:
    """Of 80 GiB: models and 2 reserved are 39.81, vLLM's weights 2N = 2.88. A cache of 30 makes 72.69, one of
    60 102.69; beside one of 1 the share of 32 must still be free when vLLM starts, 71.81."""
    (tmp_path / "config.json").write_text(QWEN)
    models = ["--policy", str(tmp_path), "--verify-rm", str(tmp_path), "--preset", "single_gpu"]
    for size, needs in (("30", "72.69"), ("1", "71.81")):
        assert main(["plan", *models, "--gpu-gib", "80", "--set", f"engine.kv_cache_gib={size}"]) == 0
        assert capsys.readouterr().out.splitlines()[-1].split() == ["together", needs, "GiB"]
    assert main(["plan", *models, "--gpu-gib", "80", "--set", "engine.kv_cache_gib=60"]) == 2
    shown = capsys.readouterr().err
    assert (
        "needs about 102.7 GiB of a GPU that has 80.0 GiB: lower engine.gpu_memory_utilization and " in shown
    )
    assert "and engine.kv_cache_gib" in shown


QWEN_7B = """{"model_type": "qwen2", "num_hidden_layers": 28, "hidden_size": 3584, "intermediate_size": 18944,
"vocab_size": 152064, "num_attention_heads": 28, "num_key_value_heads": 4, "tie_word_embeddings": false}"""
PLANNED = [
    line.strip("| ").split(" | ")
    for line in (DOCS / "how-to" / "distributed.md").read_text(encoding="utf-8").splitlines()
    if line.startswith(("| as it is", "| `engine.kind=hf`"))
]
TOLD = {
    "98.9 GiB with the preset `paper`": ("paper", QWEN, ["engine.kind=hf"], 1),
    "71.8 GiB with `single_gpu`": ("single_gpu", QWEN, [], 1),
    "57.2 GiB with that": ("single_gpu", QWEN, ["engine.kind=hf"], 1),
    "188.8 GiB in one": ("single_gpu", QWEN_7B, ["engine.kind=hf"], 1),
    "75.0 GiB with": (
        "single_gpu", QWEN_7B,
        ["engine.kind=hf", "distributed.zero_stage=1", "distributed.offload_optimizer=true"], 1,
    ),
    "63.0 GiB on each of 8": ("single_gpu", QWEN_7B, ["engine.kind=hf", "distributed.zero_stage=2"], 8),
    "75.5 GiB on each of 8": ("single_gpu", QWEN_7B, ["distributed.zero_stage=3"], 8),
}  # fmt: skip
"""What docs/cluster/operations.md says: preset, policy, settings, processes."""


def plan(
    folder: Path,
    told: tuple[str, str, Sequence[str], int],
    capsys: pytest.CaptureFixture[str],
) -> list[str]:
    """The lines of a plan with a VerifyRM of 1.5B, on a card of 80 GiB where vLLM takes its share of it."""
    preset, policy, settings, processes = told
    for name, content in {"policy": policy, "verify_rm": QWEN}.items():
        (folder / name).mkdir()
        (folder / name / "config.json").write_text(content)
    models = ["--policy", str(folder / "policy"), "--verify-rm", str(folder / "verify_rm")]
    changes = [part for setting in settings for part in ("--set", setting)]
    gib = "80" if load(preset, settings).engine.kind == "vllm" else "400"
    given = ["--preset", preset, "--processes", str(processes), "--gpu-gib", gib]
    assert main(["plan", *models, *given, *changes]) == 0
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(("settings", "phase", "needs"), PLANNED, ids=[row[0] for row in PLANNED])
def test_the_table_of_what_fits_is_what_plan_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], settings: str, phase: str, needs: str
) -> None:
    changes = re.findall(r"`(.+?)`", settings)
    processes = 8 if "8 processes" in settings else 1
    shown = plan(tmp_path, ("single_gpu", QWEN, changes, processes), capsys)
    assert f"most in the phase '{phase}'" in shown[0]
    assert float(shown[-1].split()[1]) == pytest.approx(float(needs), abs=0.051)


@pytest.mark.parametrize("said", TOLD)
def test_what_operations_say_a_gpu_holds_is_what_plan_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], said: str
) -> None:
    text = " ".join((DOCS / "cluster" / "operations.md").read_text(encoding="utf-8").split())
    assert said in text
    shown = plan(tmp_path, TOLD[said], capsys)
    assert float(shown[-1].split()[1]) == pytest.approx(float(said.split()[0]), abs=0.051)


def test_a_plan_without_models_is_refused(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--preset", "laptop"]) == 2
    assert "preset 'laptop' names no models: give --policy and --verify-rm" in capsys.readouterr().err
    models = ["--policy", str(tmp_path), "--verify-rm", str(tmp_path)]
    assert main(["plan", "--preset", "paper", *models]) == 2
    assert f"{tmp_path}: no config.json; give a model's folder" in capsys.readouterr().err
    (tmp_path / "config.json").write_text("{")
    assert main(["plan", "--preset", "paper", *models]) == 2
    assert f"{tmp_path}: cannot be read as a Hugging Face model" in capsys.readouterr().err


def test_the_preset_without_a_server_asks_no_server() -> None:
    config = load("gsm8k_one_gpu")
    assert config.labeling.judge is None
    assert config.cooper.pairs.assistant is None
    assert config.cooper.judge is None
    assert config.evaluation.judge is None
    assert {name for name, weight in config.cooper.pairs.negatives.weights().items() if weight} == {
        "rollout",
        "perturb",
    }
