"""The packed walk against the library's own: logits and gradients, for each architecture."""

from contextlib import closing
from types import SimpleNamespace

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

from cooper_rl.config.data import GenerationConfig
from cooper_rl.config.engine import EngineConfig
from cooper_rl.engines.open import open_engine
from cooper_rl.models.completions import batch_completions, completion_logprobs
from cooper_rl.models.packed.forward import can_pack, packed_logits, packed_states, use_packed
from cooper_rl.models.packed.packing import PackedBatch, pack
from cooper_rl.models.policy import Policy
from cooper_rl.models.verify_rm import VerifyRM
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


@pytest.mark.parametrize("name", KINDS)
def test_the_switch_changes_no_value_and_no_gradient_of_verify_rm(name: str) -> None:
    model = make(name)
    verify_rm = VerifyRM(model, SimpleNamespace(pad_token_id=0), compute="float32")
    found = {}
    for is_on in (True, False):
        use_packed(model, is_on=is_on)
        assert can_pack(model) == is_on
        model.zero_grad()
        logits = verify_rm.logits(SEQUENCES)
        logits.sin().sum().backward()
        found[is_on] = [logits, *(weight.grad for weight in model.parameters())]
    for ours, theirs in zip(found[True], found[False], strict=True):
        torch.testing.assert_close(ours, theirs, atol=2e-6, rtol=1e-4)


@pytest.mark.parametrize("name", KINDS)
def test_the_switch_changes_no_log_probability_no_gradient_and_no_completion(name: str) -> None:
    model = CAUSAL[name](make(name).config)
    policy = Policy(model, None, end_ids=frozenset({1}), pad_id=0, compute="float32")
    prompts = [sequence[:2] for sequence in SEQUENCES if len(sequence) > 2]
    completions = [sequence[2:] for sequence in SEQUENCES if len(sequence) > 2]
    found, drawn = {}, {}
    for is_on in (True, False):
        use_packed(model, is_on=is_on)
        model.zero_grad()
        batch = batch_completions(policy, prompts, completions)
        assert isinstance(batch.tokens, PackedBatch) == is_on
        logprobs = completion_logprobs(policy, batch, temperature=0.7)
        logprobs.sin().sum().backward()
        found[is_on] = [logprobs, *(weight.grad for weight in model.parameters())]
        with closing(open_engine(policy, EngineConfig())) as engine:
            groups = engine.generate(prompts, GenerationConfig(max_new_tokens=8), samples=2, seed=0)
        drawn[is_on] = [each.token_ids for group in groups for each in group]
    for ours, theirs in zip(found[True], found[False], strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)
    assert drawn[True] == drawn[False]


def test_a_model_that_the_walk_does_not_know_is_left_to_the_library() -> None:
    windowed = make("qwen2", use_sliding_window=True, sliding_window=4, max_window_layers=1)
    assert not can_pack(windowed)
    with_dropout = make("llama", attention_dropout=0.1)
    assert not can_pack(with_dropout)
    assert can_pack(with_dropout.eval())
