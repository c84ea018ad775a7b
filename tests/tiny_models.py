"""Models small enough for a test, made by hand: random weights, the laptop world's tokenizer."""

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM, Qwen2ForSequenceClassification

from cooper_rl.models.policy import Policy
from cooper_rl.models.verify_rm import VerifyRM, new_verify_rm
from cooper_rl.tiny.tokenizer import build_tokenizer


def tiny_config(tokenizer, **options) -> Qwen2Config:
    return Qwen2Config(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=512, bos_token_id=None,
        pad_token_id=tokenizer.pad_token_id, eos_token_id=tokenizer.eos_token_id, **options,
    )  # fmt: skip


def random_policy(seed: int) -> Policy:
    tokenizer = build_tokenizer()
    torch.manual_seed(seed)
    model = Qwen2ForCausalLM(tiny_config(tokenizer)).eval()
    return Policy(model, tokenizer, frozenset({tokenizer.eos_token_id}), tokenizer.pad_token_id)


def random_verify_rm(seed: int) -> VerifyRM:
    tokenizer = build_tokenizer()
    torch.manual_seed(seed)
    model = Qwen2ForSequenceClassification(tiny_config(tokenizer, num_labels=1)).eval()
    return new_verify_rm(model, tokenizer, reads_added_words=True)
