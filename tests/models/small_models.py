"""Random models of a few thousand weights, of any architecture, with the laptop world's tokenizer."""

from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from cooper_rl.tiny.tokenizer import build_tokenizer

REFUSED = {
    "gemma2": {"final_logit_softcapping": 30.0},
    "granite": {"logits_scaling": 8.0},
    "cohere": {"logit_scale": 0.0625},
}
"""Architecture -> how its models change the logits of their head."""


def save_small(kind: str, folder: Path, **options: Any) -> Path:
    """A model of this architecture as its makers would publish it."""
    tokenizer = build_tokenizer()
    config = AutoConfig.for_model(
        kind, vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=8,
        bos_token_id=None, pad_token_id=tokenizer.pad_token_id, eos_token_id=tokenizer.eos_token_id,
        **({"max_position_embeddings": 512} | REFUSED.get(kind, {}) | options),
    )  # fmt: skip
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
