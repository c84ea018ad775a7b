"""The packed walk against the library's own: logits and gradients, for each architecture."""

import pytest
import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    LlamaForSequenceClassification,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen2ForSequenceClassification,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3ForSequenceClassification,
)

from cooper_rl.models.packed.forward import can_pack, packed_logits, packed_states
from cooper_rl.models.packed.packing import pack
from cooper_rl.training.optimizer import set_recomputing

CPU = torch.device("cpu")
KINDS = {
    "qwen2": (Qwen2Config, Qwen2ForSequenceClassification, {}),
    "qwen3": (Qwen3Config, Qwen3ForSequenceClassification, {"head_dim": 16}),
    "llama": (LlamaConfig, LlamaForSequenceClassification, {
        "rope_parameters": {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0,
                            "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                            "original_max_position_embeddings": 32},
    }),
}  # fmt: skip
CAUSAL = {"qwen2": Qwen2ForCausalLM, "qwen3": Qwen3ForCausalLM, "llama": LlamaForCausalLM}
SEQUENCES = [[5, 6, 7, 8, 9], [5, 6, 7, 8, 9, 10, 11, 12], [5, 6, 20], [30], [5, 6, 7, 8, 9], [40, 41, 42]]


def make(name: str, **options):
    config_class, model_class, extra = KINDS[name]
    config = config_class(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, num_labels=1, pad_token_id=0, **extra, **options,
    )  # fmt: skip
    torch.manual_seed(0)
    return model_class(config).train()


def one_by_one(model) -> torch.Tensor:
    return torch.stack([model(input_ids=torch.tensor([ids])).logits[0, 0] for ids in SEQUENCES])


@pytest.mark.parametrize("name", KINDS)
def test_logits_and_gradients_are_those_of_the_library(name: str) -> None:
    model = make(name)
    assert can_pack(model)
    packed = packed_logits(model, pack(SEQUENCES, device=CPU))
    packed.sin().sum().backward()
    gradients = {key: weight.grad.clone() for key, weight in model.named_parameters()}
    model.zero_grad()
    plain = one_by_one(model)
    plain.sin().sum().backward()
    torch.testing.assert_close(packed, plain, atol=1e-6, rtol=1e-5)
    for key, weight in model.named_parameters():
        torch.testing.assert_close(gradients[key], weight.grad, atol=2e-6, rtol=1e-4)


@pytest.mark.parametrize("name", KINDS)
def test_hidden_states_are_those_of_the_library(name: str) -> None:
    model = CAUSAL[name](make(name).config)
    batch = pack(SEQUENCES, device=CPU)
    found = packed_states(model, batch)
    for ids, places in zip(SEQUENCES, batch.places, strict=True):
        expected = model.model(input_ids=torch.tensor([ids])).last_hidden_state[0]
        torch.testing.assert_close(found[places], expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", KINDS)
def test_recomputed_layers_give_the_same_gradients(name: str) -> None:
    model = make(name)
    packed_logits(model, pack(SEQUENCES, device=CPU)).sum().backward()
    plain = {key: weight.grad.clone() for key, weight in model.named_parameters()}
    model.zero_grad()
    set_recomputing(model, is_on=True)
    packed_logits(model, pack(SEQUENCES, device=CPU)).sum().backward()
    for key, weight in model.named_parameters():
        torch.testing.assert_close(plain[key], weight.grad, atol=1e-6, rtol=1e-5)


def test_a_bf16_walk_stays_close_to_the_fp32_one() -> None:
    model = make("qwen2").eval()
    exact = packed_logits(model, pack(SEQUENCES, device=CPU))
    with torch.autocast("cpu", torch.bfloat16):
        rough = packed_logits(model, pack(SEQUENCES, device=CPU))
    torch.testing.assert_close(rough.float(), exact, atol=0.03, rtol=0.05)


@pytest.mark.parametrize("name", KINDS)
def test_gradients_of_a_bf16_walk_stay_close_to_those_of_the_fp32_one(name: str) -> None:
    model = make(name)
    packed_logits(model, pack(SEQUENCES, device=CPU)).sum().backward()
    exact = {key: weight.grad.clone() for key, weight in model.named_parameters()}
    model.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        logits = packed_logits(model, pack(SEQUENCES, device=CPU))
    logits.float().sum().backward()
    for key, weight in model.named_parameters():
        torch.testing.assert_close(weight.grad, exact[key], atol=0.03 * exact[key].abs().max().item(), rtol=0)


def test_a_model_that_the_walk_does_not_know_is_left_to_the_library() -> None:
    windowed = make("qwen2", use_sliding_window=True, sliding_window=4, max_window_layers=1)
    assert not can_pack(windowed)
    with_dropout = make("llama", attention_dropout=0.1)
    assert not can_pack(with_dropout)
    assert can_pack(with_dropout.eval())
