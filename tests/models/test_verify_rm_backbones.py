"""VerifyRM from each architecture of the packed walk: made, trained in bf16, saved, loaded elsewhere."""

from pathlib import Path

import pytest
import torch
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from cooper_rl.config.models import VerifyRMConfig
from cooper_rl.errors import ModelError
from cooper_rl.models.verify_rm import VerifyItem, VerifyRM, make_from_backbone, save_verify_rm
from cooper_rl.schema.data import VerifyExample
from cooper_rl.tiny.tokenizer import build_tokenizer
from cooper_rl.training.fitting.fit_verify_rm import fit_verify_rm
from tests.models.small_models import save_small

KINDS = {
    "qwen2": (Qwen2Config, Qwen2ForCausalLM),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM),
    "llama": (LlamaConfig, LlamaForCausalLM),
}
ROWS = [
    VerifyExample(question=f"Tom has {n} apples.", reference_answer=str(n), label=n % 2,
                  completion="The answer is apples." if n % 2 else "The answer is pears.")
    for n in range(24)
]  # fmt: skip


def save_backbone(name: str, folder: Path) -> Path:
    config_class, model_class = KINDS[name]
    tokenizer = build_tokenizer()
    torch.manual_seed(0)
    config = config_class(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2, head_dim=8,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=512, bos_token_id=None,
        pad_token_id=None, eos_token_id=tokenizer.eos_token_id,
    )  # fmt: skip
    model_class(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("name", KINDS)
def test_a_backbone_is_trained_in_bf16_with_fp32_weights_and_loads_in_stock_transformers(
    name: str, tmp_path: Path
) -> None:
    made = make_from_backbone(save_backbone(name, tmp_path / "lm"), seed=0, device=torch.device("cpu"))
    verify_rm = VerifyRM(made.model, made.tokenizer, "bfloat16")
    config = VerifyRMConfig(num_epochs=16, batch_size=8, lr=1e-2, precision="bfloat16")
    fit = fit_verify_rm(verify_rm, ROWS, config=config, seed=0)
    assert fit.final_loss < 0.4
    assert {weight.dtype for weight in verify_rm.model.parameters()} == {torch.float32}
    save_verify_rm(verify_rm, tmp_path / "rm")

    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "rm")
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "rm")
    items = [VerifyItem(row.question, row.reference_answer, row.completion) for row in ROWS[:5]]
    batch = tokenizer.pad({"input_ids": verify_rm.encode(items)}, return_tensors="pt")
    scores = model(**batch).logits[:, 0].sigmoid()
    exact = VerifyRM(made.model, made.tokenizer, "float32")
    assert scores.tolist() == pytest.approx(exact.score(items), abs=1e-5)


def test_a_backbone_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    folder = save_backbone("llama", tmp_path / "lm")
    for path in folder.glob("*token*"):
        path.unlink()
    with pytest.raises(ModelError, match="no tokenizer beside the model"):
        make_from_backbone(folder, seed=0, device=torch.device("cpu"))


@pytest.mark.parametrize("rope_type", ["dynamic", "longrope"])
def test_positions_that_follow_from_the_longest_text_of_a_batch_are_refused(
    tmp_path: Path, rope_type: str
) -> None:
    factors: dict[str, object] = (
        {"short_factor": [1.0] * 4, "long_factor": [2.0] * 4} if rope_type == "longrope" else {}
    )
    rope = {"rope_type": rope_type, "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 128}
    folder = save_small("llama", tmp_path / "backbone", rope_parameters=rope | factors)
    with pytest.raises(ModelError, match=f"rope_type='{rope_type}' in config.json makes a score depend"):
        make_from_backbone(folder, seed=0, device=torch.device("cpu"))


def test_a_text_beyond_a_table_of_positions_is_named(tmp_path: Path) -> None:
    folder = save_small(
        "opt", tmp_path / "backbone", max_position_embeddings=64, ffn_dim=64, word_embed_proj_dim=32
    )
    verify_rm = make_from_backbone(folder, seed=0, device=torch.device("cpu"))
    assert len(verify_rm.score([VerifyItem("1+1?", "2", "2")])) == 1
    with pytest.raises(ModelError, match=r"its table holds 64 positions, and a text has \d+ tokens"):
        verify_rm.score([VerifyItem("1+1?", "2", "2 " * 100)])
