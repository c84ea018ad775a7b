"""Co-training with adapters: a plain policy in every checkpoint, and exact resume from it."""

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from cooper_rl.checkpoints.reference import open_checkpoint
from cooper_rl.config.infrastructure import StorageConfig
from cooper_rl.errors import ConfigError, ModelError
from cooper_rl.models.policy import save_policy
from tests.stages.conftest import Files
from tests.stages.train_cooper.test_train_cooper import numbers, train

LORA = [
    "cooper.policy.lora.rank=2",
    "cooper.policy.warmup_steps=0",
    "cooper.reward.update_verify_rm=false",
    "cooper.policy.kl_coefficient=0.1",
]


def tensors(checkpoint: Path) -> dict[str, dict[str, torch.Tensor]]:
    with open_checkpoint(checkpoint, StorageConfig()) as found:
        files = ("policy/model.safetensors", "policy_optimizer.safetensors")
        return {file: load_file(found.folder / file) for file in files}


@pytest.fixture(scope="module")
def straight(files: Files, tmp_path_factory) -> Path:
    checkpoint = tmp_path_factory.mktemp("lora") / "checkpoint"
    train(files, checkpoint, *LORA, "cooper.steps=3")
    return checkpoint


def test_a_run_with_adapters_continues_exactly(files: Files, straight: Path, tmp_path: Path) -> None:
    train(files, tmp_path / "run", *LORA, "cooper.steps=2")
    train(files, tmp_path / "run", *LORA, "cooper.steps=3")
    assert numbers(tmp_path / "run") == numbers(straight)
    for file, expected in tensors(straight).items():
        found = tensors(tmp_path / "run")[file]
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


def test_the_engine_draws_with_what_was_learned_and_the_reference_stays(straight: Path) -> None:
    """Engine and trainer agree on every step's tokens though one has merged weights; KL starts at 0."""
    rows = numbers(straight)
    assert all(row["policy/max_mismatch"] < 1e-4 for row in rows)
    assert rows[0]["policy/kl"] == pytest.approx(0, abs=1e-9)
    assert rows[2]["policy/kl"] > 1e-6


def test_a_checkpoint_holds_a_plain_policy_that_has_learned(files: Files, straight: Path) -> None:
    merged = tensors(straight)["policy/model.safetensors"]
    start = load_file(Path(files.models) / "policy" / "model.safetensors")
    assert merged.keys() == start.keys()
    changed = {name for name in start if not torch.equal(merged[name], start[name])}
    assert all(name.endswith("_proj.weight") for name in changed)
    assert len(changed) == len([name for name in start if name.endswith("_proj.weight")])
    saved = tensors(straight)["policy_optimizer.safetensors"]
    assert all(".lora_" in name for name in saved)


@pytest.mark.parametrize(
    ("change", "name"), [("cooper.policy.lora.alpha=64", "_proj.weight"), (None, "model.embed_tokens.weight")]
)
def test_adapters_of_another_scale_or_for_other_models_are_refused(
    files: Files, straight: Path, tmp_path: Path, make_policy, change: str | None, name: str
) -> None:
    """A new iteration from a checkpoint whose adapters would make another policy."""
    models = files.models
    if change is None:
        models = shutil.copytree(files.models, tmp_path / "models")
        save_policy(make_policy(5), models / "policy")
    with pytest.raises(ConfigError, match=rf"does not give the policy that was saved .*{name} differs"):
        train(files, tmp_path / "run", *LORA, *filter(None, [change]), start=straight, models=models)


def test_adapters_of_another_rank_are_refused(files: Files, straight: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"fits no weight of the model .* cooper\.policy\.lora\.rank"):
        train(files, tmp_path / "run", *LORA, "cooper.policy.lora.rank=3", start=straight)
