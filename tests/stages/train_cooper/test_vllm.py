"""Co-training with vLLM's rollouts, end to end on its CPU build: `make test-vllm`."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from cooper_rl.models.policy import Policy, save_policy
from cooper_rl.records.files import write_report
from cooper_rl.schema.reports import ModelSet
from tests.engines.test_engine_contract import needs_vllm
from tests.stages.conftest import Files
from tests.stages.train_cooper.test_distributed import assert_same_numbers, train_alone, train_together
from tests.stages.train_cooper.test_train_cooper import numbers, train

pytestmark = [pytest.mark.slow, pytest.mark.vllm, needs_vllm]

VLLM = [
    "engine.kind=vllm",
    "engine.enforce_eager=true",
    "engine.kv_cache_gib=0.1",
    "engine.max_num_seqs=32",
    "cooper.policy.max_importance_weight=2.0",
    "cooper.checkpoint_every=1",
]


@pytest.fixture(scope="module")
def vllm_files(files: Files, make_policy: Callable[[int], Policy], tmp_path_factory) -> Files:
    """With a policy whose heads are as large as vLLM wants them."""
    small = make_policy(0)
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=len(small.tokenizer), hidden_size=64, intermediate_size=96, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=512, bos_token_id=None,
        pad_token_id=small.pad_id, eos_token_id=small.tokenizer.eos_token_id, tie_word_embeddings=True,
    )  # fmt: skip
    models = tmp_path_factory.mktemp("vllm") / "models"
    save_policy(dataclasses.replace(small, model=Qwen2ForCausalLM(config)), models / "policy")
    write_report(
        models / "models.json", ModelSet(policy="policy", samplers={"policy": "policy"}, backbone="policy")
    )
    return dataclasses.replace(files, models=models)


def test_two_steps_measure_the_mismatch_and_a_stopped_run_continues(
    vllm_files: Files, tmp_path: Path
) -> None:
    """fp32 on both sides: the mismatch is rounding. The resumed run meets the same draws."""
    train(vllm_files, tmp_path / "straight", *VLLM, "cooper.steps=2")
    rows = numbers(tmp_path / "straight")
    assert [row["step"] for row in rows] == [1, 2]
    for row in rows:
        assert 0 < row["policy/mismatch"] < 1e-5
        assert row["policy/max_mismatch"] < 1e-4
        assert row["policy/importance_ratio"] == pytest.approx(1, abs=1e-5)
        assert row["policy/grad_norm"] > 0

    train(vllm_files, tmp_path / "stopped", *VLLM, "cooper.steps=1")
    train(vllm_files, tmp_path / "stopped", *VLLM, "cooper.steps=2")
    resumed = numbers(tmp_path / "stopped")
    assert len(resumed) == 2
    for one, other in zip(rows, resumed, strict=True):
        assert other == pytest.approx(one, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize(("num_processes", "stage"), [(1, 2), (2, 3)])
def test_processes_with_an_engine_each_give_the_numbers_of_one(
    vllm_files: Files, tmp_path: Path, num_processes: int, stage: int
) -> None:
    """ZeRO 3 has whole weights only while they are handed to the engines."""
    pytest.importorskip("deepspeed")
    train_alone(vllm_files, tmp_path / "alone", *VLLM, "cooper.steps=2")
    train_together(
        vllm_files, tmp_path / "together", stage, *VLLM, "cooper.steps=2", num_processes=num_processes
    )
    assert_same_numbers(numbers(tmp_path / "together"), numbers(tmp_path / "alone"))


def test_several_processes_with_several_gpus_each_are_refused(vllm_files: Files, tmp_path: Path) -> None:
    pytest.importorskip("deepspeed")
    with pytest.raises(AssertionError, match=r"engine\.tensor_parallel_size=2: each of the 2 processes"):
        train_together(
            vllm_files, tmp_path / "together", 1, *VLLM, "cooper.steps=1", "engine.tensor_parallel_size=2"
        )
