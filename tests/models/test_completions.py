"""Log-probabilities of completions: against plain forward passes, packed and padded, whole and in chunks."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, Qwen2Config, Qwen2ForCausalLM

from cooper_rl.errors import ModelError
from cooper_rl.models import completions as module
from cooper_rl.models.completions import (
    batch_completions,
    check_head,
    completion_logprobs,
    split_completions,
)
from cooper_rl.models.packed.forward import can_pack
from cooper_rl.models.packed.packing import PackedBatch
from cooper_rl.models.policy import Policy
from cooper_rl.models.precision import round_layers

PROMPTS = [[10, 11, 12], [10, 11, 12], [20, 21], [10, 11, 12]]
COMPLETIONS = [[13, 14, 15, 16], [13, 14, 30], [22], [40, 41]]


def with_windows(policy: Policy) -> Policy:
    """The same weights and numbers (the window is longer than any sequence), but not for the packed walk."""
    options = policy.model.config.to_dict() | {
        "use_sliding_window": True, "sliding_window": 64, "max_window_layers": 1, "layer_types": None,
    }  # fmt: skip
    model = Qwen2ForCausalLM(Qwen2Config(**options)).eval()
    model.load_state_dict(policy.model.state_dict())
    return replace(policy, model=model)


def one_by_one(policy: Policy, *, temperature: float) -> torch.Tensor:
    """(B, C), every completion in a forward pass of its own."""
    found = torch.zeros(4, 4)
    for row, (prompt, completion) in enumerate(zip(PROMPTS, COMPLETIONS, strict=True)):
        logits = policy.model(torch.tensor([[*prompt, *completion]])).logits[0] / temperature
        logprobs = logits.log_softmax(dim=1)[len(prompt) - 1 : -1]
        found[row, : len(completion)] = logprobs[range(len(completion)), completion]
    return found


@pytest.mark.parametrize("is_packed", [True, False], ids=["packed", "padded"])
def test_values_and_gradients_are_those_of_plain_forward_passes(make_policy, is_packed: bool) -> None:
    policy = make_policy(0) if is_packed else with_windows(make_policy(0))
    assert can_pack(policy.model) == is_packed
    expected = one_by_one(policy, temperature=0.7)
    expected.sin().sum().backward()
    gradients = {name: weight.grad.clone() for name, weight in policy.model.named_parameters()}
    policy.model.zero_grad()
    batch = batch_completions(policy, PROMPTS, COMPLETIONS)
    found = completion_logprobs(policy, batch, temperature=0.7)
    found.sin().sum().backward()
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    for name, weight in policy.model.named_parameters():
        torch.testing.assert_close(weight.grad, gradients[name], atol=1e-5, rtol=1e-4)


def test_bf16_log_probabilities_stay_close_to_those_in_fp32(make_policy) -> None:
    policy = make_policy(0)
    batch = batch_completions(policy, PROMPTS, COMPLETIONS)
    exact = completion_logprobs(policy, batch, temperature=1.0)
    rounded = completion_logprobs(replace(policy, compute="bfloat16"), batch, temperature=1.0)
    assert rounded.dtype == torch.float32
    torch.testing.assert_close(rounded, exact, atol=0.05, rtol=0.02)
    assert not torch.equal(rounded, exact)


def test_a_groups_prompt_and_common_beginnings_are_computed_once(make_policy) -> None:
    """10 11 12 | 13 14 | 15 and 40, and 20 21; no last token is computed."""
    batch = batch_completions(make_policy(0), PROMPTS, COMPLETIONS)
    assert isinstance(batch.tokens, PackedBatch)
    assert sorted(batch.tokens.token_ids.tolist()) == [10, 11, 12, 13, 14, 15, 20, 21, 40]
    assert batch.mask.sum(dim=1).tolist() == [4, 3, 1, 2]


def test_every_completion_is_in_one_batch_under_the_budget(make_policy) -> None:
    policy = make_policy(0)
    for chosen in (policy, with_windows(policy)):
        parts = split_completions(chosen, PROMPTS, COMPLETIONS, 8)
        assert sorted(index for part in parts for index in part) == [0, 1, 2, 3]
        assert len(parts) > 1


def test_token_logprobs_of_known_logits_at_two_temperatures() -> None:
    """Logits (0, ln 3): p = 1/4, 3/4. At temperature 1/2 they are (0, 2 ln 3): p = 1/10, 9/10."""
    head = torch.nn.Linear(2, 2, bias=False)
    torch.nn.init.eye_(head.weight)
    hidden = torch.tensor([[0.0, math.log(3.0)]]).repeat(2, 1)
    targets = torch.tensor([0, 1])
    at_one = module.chunked_logprobs(head, hidden, targets, 1.0)
    at_half = module.chunked_logprobs(head, hidden, targets, 0.5)
    torch.testing.assert_close(at_one.exp(), torch.tensor([0.25, 0.75]))
    torch.testing.assert_close(at_half.exp(), torch.tensor([0.1, 0.9]))


@pytest.mark.parametrize("limits", [["MAX_LOGITS"], ["CPU_LOGITS"], ["MAX_LOGITS", "CPU_LOGITS"]])
def test_logits_in_chunks_give_the_same_values_and_gradients(make_policy, monkeypatch, limits) -> None:
    """Ten tokens, four to a chunk; with both limits three of those at a time."""
    policy = make_policy(0)
    batch = batch_completions(policy, PROMPTS, COMPLETIONS)

    def values_and_gradient() -> tuple[torch.Tensor, torch.Tensor]:
        policy.model.zero_grad()
        values = completion_logprobs(policy, batch, temperature=0.7)
        values.square().sum().backward()
        return values.detach(), policy.model.lm_head.weight.grad.clone()

    whole = values_and_gradient()
    for rows, limit in zip([4, 3], limits, strict=False):
        monkeypatch.setattr(module, limit, rows * policy.model.config.vocab_size)
    chunked = values_and_gradient()
    torch.testing.assert_close(chunked, whole)


def head_gradients(
    dtype: torch.dtype, monkeypatch, *, num_chunks: int = 1, logprobs: Any = module.chunked_logprobs
) -> dict[str, torch.Tensor]:
    """Gradients of 448 tokens' weighted log-probabilities; hidden states and head are bf16's in any type."""
    draw = torch.Generator().manual_seed(0)
    head = torch.nn.Linear(64, 512, dtype=dtype)
    for weight in head.parameters():
        weight.data = torch.randn(weight.shape, generator=draw).mul(0.3).bfloat16().to(dtype)
    hidden = torch.randn(448, 64, generator=draw).bfloat16().to(dtype).requires_grad_()
    targets = torch.randint(512, (448,), generator=draw)
    advantages = torch.randn(448, generator=draw)
    monkeypatch.setattr(module, "MAX_LOGITS", 512 * 448 // num_chunks)
    (logprobs(head, hidden, targets, 0.7) * advantages).sum().backward()
    weight, bias = head.weight.grad, head.bias.grad
    assert hidden.grad is not None
    assert weight is not None
    assert bias is not None
    return {"hidden": hidden.grad, "weight": weight, "bias": bias}


def by_autograd(
    head: torch.nn.Linear, hidden: torch.Tensor, targets: torch.Tensor, temperature: float
) -> Any:
    """The definition, a chunk of 4 tokens at a time, in the type of the head."""
    chunks = zip(hidden.split(4), targets.split(4), strict=True)
    return torch.cat([(head(part) / temperature).log_softmax(1)[range(4), own] for part, own in chunks])


@pytest.mark.parametrize("num_chunks", [1, 28, 112])
def test_the_heads_gradient_in_bf16_is_as_exact_in_many_chunks_as_in_one(num_chunks, monkeypatch) -> None:
    """Relative error against fp64: .0048, .0051, .0051. Sums in bf16 had .0048, .0067, .0074."""
    exact = head_gradients(torch.float64, monkeypatch, logprobs=by_autograd)
    found = head_gradients(torch.bfloat16, monkeypatch, num_chunks=num_chunks)
    for name, gradient in found.items():
        assert (gradient - exact[name]).norm() / exact[name].norm() < 0.0055, name


def test_gradients_in_fp32_are_autograds_over_the_same_chunks_bit_for_bit(monkeypatch) -> None:
    def by_chunks(head: Any, hidden: Any, targets: Any, temperature: float) -> Any:
        chunks = zip(hidden.split(4), targets.split(4), strict=True)
        return torch.cat([module.chunked_logprobs(head, part, own, temperature) for part, own in chunks])

    expected = head_gradients(torch.float32, monkeypatch, logprobs=by_chunks)
    found = head_gradients(torch.float32, monkeypatch, num_chunks=112)
    assert all(torch.equal(found[name], gradient) for name, gradient in expected.items())


def test_weights_in_fp32_get_a_gradient_that_bf16_passes_have_added_up_in_fp32(
    make_policy, monkeypatch
) -> None:
    """Autocast's own backward would round it: its numbers would all be bf16's."""
    policy = replace(make_policy(0), compute="bfloat16")
    monkeypatch.setattr(module, "MAX_LOGITS", 4 * policy.model.config.vocab_size)
    completion_logprobs(
        policy, batch_completions(policy, PROMPTS, COMPLETIONS), temperature=1.0
    ).sum().backward()
    gradient = policy.model.lm_head.weight.grad
    assert gradient.dtype == torch.float32
    assert not torch.equal(gradient, gradient.bfloat16().float())


def test_a_frozen_head_gets_no_gradient_in_chunks(make_policy, monkeypatch) -> None:
    policy = make_policy(0)
    policy.model.lm_head.weight.requires_grad_(False)
    monkeypatch.setattr(module, "MAX_LOGITS", 4 * policy.model.config.vocab_size)
    completion_logprobs(
        policy, batch_completions(policy, PROMPTS, COMPLETIONS), temperature=1.0
    ).sum().backward()
    assert policy.model.lm_head.weight.grad is None
    assert policy.model.model.norm.weight.grad.abs().sum() > 0


@pytest.mark.parametrize("kind", ["qwen2", "qwen3", "gemma3_text", "mistral"])
@pytest.mark.parametrize("is_tied", [True, False])
def test_bf16_passes_give_the_same_bits_when_linear_layers_are_rounded_beforehand(
    make_policy, kind: str, is_tied: bool
) -> None:
    policy = replace(of_kind(make_policy(0), kind, tie_word_embeddings=is_tied), compute="bfloat16")
    policy.model.requires_grad_(False)
    batch = batch_completions(policy, PROMPTS, COMPLETIONS)
    expected = completion_logprobs(policy, batch, temperature=0.7)
    round_layers(policy.model)
    assert torch.equal(completion_logprobs(policy, batch, temperature=0.7), expected)
    kinds = {name: weight.dtype for name, weight in policy.model.named_parameters()}
    assert kinds["model.embed_tokens.weight"] == kinds["model.norm.weight"] == torch.float32
    assert kinds["model.layers.0.mlp.down_proj.weight"] == torch.bfloat16
    assert is_tied or kinds["lm_head.weight"] == torch.bfloat16


def of_kind(policy: Policy, kind: str, **options: Any) -> Policy:
    """Random weights of another architecture, whose logits lie far from 0."""
    config = AutoConfig.for_model(
        kind, vocab_size=len(policy.tokenizer), hidden_size=32, intermediate_size=48, num_hidden_layers=1,
        num_attention_heads=4, num_key_value_heads=2, head_dim=8, max_position_embeddings=256, pad_token_id=0,
        eos_token_id=1, bos_token_id=2, **({"logits_scaling": 8.0} if kind == "granite" else {}), **options,
    )  # fmt: skip
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        model.get_output_embeddings().weight.mul_(100)
    return replace(policy, model=model)


@pytest.mark.parametrize("kind", ["gemma2", "granite", "cohere"])
def test_a_model_that_changes_its_heads_logits_is_refused(make_policy, kind: str) -> None:
    """Gemma 2 caps them, Granite divides and Cohere multiplies them: the head alone gives others."""
    with pytest.raises(ModelError, match=r"the policy: \w+ForCausalLM scales or caps the logits of its head"):
        check_head(of_kind(make_policy(0), kind))


@pytest.mark.parametrize("kind", ["qwen3", "llama", "mistral", "gemma3_text", "phi3", "olmo2"])
def test_a_model_whose_head_gives_its_logits_is_taken(make_policy, kind: str) -> None:
    policy = of_kind(make_policy(0), kind)
    check_head(policy)
    found = completion_logprobs(policy, batch_completions(policy, PROMPTS, COMPLETIONS), temperature=1.0)
    torch.testing.assert_close(found, one_by_one(policy, temperature=1.0), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("rope_type", "most"), [("dynamic", 8), ("longrope", 6)])
def test_log_probabilities_that_depend_on_the_longest_completion_beside_are_refused(
    make_policy, rope_type: str, most: int
) -> None:
    """[10, 11, 12] and 13 is turned as its neighbour of more than 8, or 6, tokens is."""
    factors = {"short_factor": [1.0] * 4, "long_factor": [8.0] * 4} if rope_type == "longrope" else {}
    rope = {"rope_type": rope_type, "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 6}
    options = make_policy(0).model.config.to_dict() | {
        "max_position_embeddings": 8, "rope_parameters": rope | factors,
    }  # fmt: skip
    torch.manual_seed(0)
    policy = replace(make_policy(0), model=Qwen2ForCausalLM(Qwen2Config(**options)).eval())

    def of_first(length: int) -> float:
        beside = [[13], list(range(20, 20 + length))]
        batch = batch_completions(policy, [[10, 11, 12]] * 2, beside)
        return completion_logprobs(policy, batch, temperature=1.0)[0, 0].item()

    longest = most - 3 + 1  # its last token is read by nobody
    alone = of_first(1)
    assert of_first(longest) == pytest.approx(alone, abs=1e-6)
    assert of_first(longest + 1) != pytest.approx(alone, abs=1e-6)
    prompts = [[10, 11, 12]] * 2
    assert split_completions(policy, prompts, [[13], [14] * longest], 100) == [[0, 1]]
    with pytest.raises(
        ModelError,
        match=rf"rope_type='{rope_type}' in config\.json turns all texts of a batch in another way where one "
        rf"has more than {most} tokens, .* up to {most + 1}: lower cooper\.generation\.max_new_tokens, ",
    ):
        split_completions(policy, prompts, [[13], [14] * (longest + 1)], 100)
