"""Gradient checkpointing gives the numbers of a pass without it."""

from functools import partial
from types import SimpleNamespace

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Qwen2Config, Qwen2ForCausalLM

from cooper_rl.training.optimizer import recomputing, set_recomputing

MODELS = {
    "modules": lambda: GPT2LMHeadModel(
        GPT2Config(
            vocab_size=40, n_embd=16, n_layer=2, n_head=2, n_positions=32, resid_pdrop=0.5, attn_pdrop=0.5,
        )
    ),
    "a function": lambda: Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=40, hidden_size=16, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2,
            num_key_value_heads=2, attention_dropout=0.5,
        )
    ),
}  # fmt: skip
"""Where a model has its dropout."""


@pytest.mark.parametrize("dropout", MODELS)
def test_dropout_stays_off_and_layers_are_computed_twice(dropout: str) -> None:
    torch.manual_seed(0)
    model = MODELS[dropout]().eval()
    ids = torch.randint(0, 40, (2, 9))
    layers = model.transformer.h if dropout == "modules" else model.model.layers
    counts = {False: 0, True: 0}
    gradients: dict[bool, list[torch.Tensor | None]] = {}
    for is_on in (False, True):
        hook = layers[0].mlp.register_forward_pre_hook(
            lambda *_, is_on=is_on: counts.update({is_on: counts[is_on] + 1})
        )
        model.zero_grad()
        with recomputing(model, is_on=is_on):
            model(input_ids=ids, labels=ids, use_cache=False).loss.backward()
        gradients[is_on] = [weight.grad for weight in model.parameters()]
        hook.remove()
        assert not any(module.training for module in model.modules())
    assert counts == {False: 1, True: 2}
    for one, other in zip(gradients[False], gradients[True], strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("kind", ["activation", "gradient"])
def test_it_is_turned_on_and_off_by_the_names_that_the_library_has(kind: str) -> None:
    """5.23 has both, of which the second warns; 5.19, in the image for GPUs, has the second alone."""
    calls: list[str] = []
    names = {"activation", "gradient"} if kind == "activation" else {"gradient"}
    model = SimpleNamespace(
        **{
            f"{name}_checkpointing_{word}": partial(calls.append, f"{name} {word}")
            for name in names
            for word in ("enable", "disable")
        }
    )
    set_recomputing(model, is_on=True)
    set_recomputing(model, is_on=False)
    assert calls == [f"{kind} enable", f"{kind} disable"]
