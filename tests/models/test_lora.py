"""Adapters of the policy: off they change nothing, merged they compute the same in a plain model."""

import sys

import pytest
import torch

from cooper_rl.errors import ConfigError
from cooper_rl.models.completions import batch_completions, completion_logprobs
from cooper_rl.models.lora import (
    adapter_weights,
    add_adapters,
    idle_adapters,
    merged_weights,
    without_adapters,
)
from cooper_rl.models.packed.forward import can_pack
from cooper_rl.models.policy import Policy

PROMPTS, COMPLETIONS = [[5, 6, 7], [8, 9]], [[10, 11, 12], [13, 14]]


def logprobs(policy: Policy) -> torch.Tensor:
    with torch.no_grad():
        batch = batch_completions(policy, PROMPTS, COMPLETIONS)
        return completion_logprobs(policy, batch, temperature=1.0)


@pytest.fixture
def adapted(make_policy) -> Policy:
    """Seed 0's policy with adapters that have learned something."""
    policy = make_policy(0)
    add_adapters(policy.model, rank=2, alpha=3.0, seed=7)
    generator = torch.Generator().manual_seed(0)
    for name, weight in adapter_weights(policy.model).items():
        if ".lora_B." in name:
            weight.data.normal_(std=0.1, generator=generator)
    return policy


def test_adapters_alone_are_trained_and_their_start_is_the_seeds(make_policy) -> None:
    first, second, other = make_policy(0), make_policy(0), make_policy(0)
    state = torch.get_rng_state()
    for policy, seed in ((first, 7), (second, 7), (other, 8)):
        add_adapters(policy.model, rank=2, alpha=4.0, seed=seed)
    assert torch.equal(torch.get_rng_state(), state)
    own, again, different = (adapter_weights(policy.model) for policy in (first, second, other))
    assert {name for name, weight in first.model.named_parameters() if weight.requires_grad} == own.keys()
    assert len(own) == 2 * 7 * first.model.config.num_hidden_layers
    assert all(torch.equal(own[name], again[name]) for name in own)
    assert not all(torch.equal(own[name], different[name]) for name in own)


def test_without_adapters_the_model_is_the_one_it_was(make_policy, adapted: Policy) -> None:
    expected = logprobs(make_policy(0))
    with without_adapters(adapted.model):
        torch.testing.assert_close(logprobs(adapted), expected, atol=1e-5, rtol=1e-5)
    assert (logprobs(adapted) - expected).abs().max() > 1e-3
    assert all(weight.requires_grad for weight in adapter_weights(adapted.model).values())
    adapted.model.load_state_dict(idle_adapters(adapter_weights(adapted.model)), strict=False)
    torch.testing.assert_close(logprobs(adapted), expected, atol=1e-5, rtol=1e-5)


def test_merged_weights_compute_the_same_in_a_plain_model(make_policy, adapted: Policy) -> None:
    """A matrix is W + (alpha / rank) B A, here 3 / 2."""
    assert can_pack(adapted.model)
    plain = make_policy(1)
    merged = dict(merged_weights(adapted.model))
    assert merged.keys() == plain.model.state_dict().keys()
    layer = "model.layers.0.mlp.up_proj"
    states = adapted.model.state_dict()
    product = states[f"{layer}.lora_B.default.weight"] @ states[f"{layer}.lora_A.default.weight"]
    expected = states[f"{layer}.base_layer.weight"] + 1.5 * product
    torch.testing.assert_close(merged[f"{layer}.weight"], expected)
    plain.model.load_state_dict(merged)
    torch.testing.assert_close(logprobs(plain), logprobs(adapted), atol=1e-5, rtol=1e-5)


def test_a_model_without_adapters_gives_its_own_weights(make_policy) -> None:
    model = make_policy(0).model
    own = model.state_dict()
    assert all(tensor.data_ptr() == own[name].data_ptr() for name, tensor in merged_weights(model))


def test_a_missing_peft_names_its_extra(make_policy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(ConfigError, match=r"cooper\.policy\.lora needs peft .*pip install '\.\[lora\]'"):
        add_adapters(make_policy(0).model, rank=2, alpha=4.0, seed=0)


def test_adapters_get_the_gradients_of_the_librarys_walk(
    adapted: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = adapter_weights(adapted.model)

    def gradients() -> tuple[torch.Tensor, ...]:
        batch = batch_completions(adapted, PROMPTS, COMPLETIONS)
        logprobs = completion_logprobs(adapted, batch, temperature=1.0)
        return torch.autograd.grad(logprobs.sin().sum(), list(weights.values()))

    packed = gradients()
    monkeypatch.setattr("cooper_rl.models.completions.can_pack", lambda _: False)
    for name, own, theirs in zip(weights, packed, gradients(), strict=True):
        assert own.abs().max() > 0, name
        torch.testing.assert_close(own, theirs, atol=1e-6, rtol=1e-4)
