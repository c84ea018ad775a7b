"""What only the Hugging Face engine does; what all engines do is in `test_engine_contract.py`."""

import pytest
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from cooper_rl.backends.engine import Generation
from cooper_rl.backends.engine_hf import HFEngine
from cooper_rl.backends.packed_forward import can_pack
from cooper_rl.config.data import GenerationConfig

END, PAD = 1, 0
PROMPTS = [[5, 6, 7], [8, 9, 10, 11, 12, 13, 14], [15], [16, 17, 18, 19]]


@pytest.fixture(scope="module")
def model() -> Qwen2ForCausalLM:
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=40, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=128, pad_token_id=PAD, eos_token_id=END,
        bos_token_id=None,
    )  # fmt: skip
    model = Qwen2ForCausalLM(config).eval()
    with torch.no_grad():  # sharper than the initial near-uniform distribution, so that ends are drawn
        model.lm_head.weight.mul_(12)
    return model


@pytest.fixture(scope="module")
def engine(model: Qwen2ForCausalLM) -> HFEngine:
    return HFEngine(model, end_ids=frozenset({END}), pad_id=PAD)


def flat(groups: list[list[Generation]]) -> list[Generation]:
    return [generation for group in groups for generation in group]


def test_a_draw_does_not_depend_on_what_shares_its_batch(engine: HFEngine) -> None:
    together = engine.generate(
        PROMPTS, GenerationConfig(max_new_tokens=24, batch_size=100), samples=4, seed=5
    )
    apart = engine.generate(PROMPTS, GenerationConfig(max_new_tokens=24, batch_size=4), samples=4, seed=5)
    assert [g.token_ids for g in flat(together)] == [g.token_ids for g in flat(apart)]


def test_a_bf16_engine_draws_from_rounded_weights_and_follows_the_model(model: Qwen2ForCausalLM) -> None:
    """The model's own weights stay in fp32; log-probabilities stay within bf16's rounding of it."""
    torch.manual_seed(1)
    trained = Qwen2ForCausalLM(model.config).eval()
    engine = HFEngine(trained, end_ids=frozenset({END}), pad_id=PAD, compute="bfloat16")
    trained.load_state_dict(model.state_dict())
    engine.load_weights(iter(trained.state_dict().items()))
    (group,) = engine.generate(PROMPTS[:1], GenerationConfig(max_new_tokens=12), samples=8, seed=0)
    assert all(weight.dtype == torch.float32 for weight in trained.parameters())
    for generation in group:
        ids = torch.tensor([[*PROMPTS[0], *generation.token_ids]])
        with torch.no_grad():
            exact = trained(ids).logits[0, len(PROMPTS[0]) - 1 : -1].log_softmax(dim=1)
        exact = exact.gather(1, torch.tensor(generation.token_ids)[:, None])[:, 0]
        found = torch.tensor(generation.logprobs)
        torch.testing.assert_close(found, exact, atol=0.15, rtol=0.05)
        assert not torch.allclose(found, exact, atol=1e-5, rtol=0)


def test_a_model_that_the_static_walk_does_not_know_draws_the_same(model: Qwen2ForCausalLM) -> None:
    """Sliding windows longer than any sequence: the library's forward and cache, the same numbers."""
    options = model.config.to_dict() | {
        "use_sliding_window": True, "sliding_window": 100, "max_window_layers": 1, "layer_types": None,
    }  # fmt: skip
    windowed = Qwen2ForCausalLM(Qwen2Config(**options)).eval()
    windowed.load_state_dict(model.state_dict())
    assert can_pack(model)
    assert not can_pack(windowed)
    sampled = GenerationConfig(max_new_tokens=24)
    drawn = [
        flat(
            HFEngine(each, end_ids=frozenset({END}), pad_id=PAD).generate(PROMPTS, sampled, samples=4, seed=3)
        )
        for each in (model, windowed)
    ]
    assert [g.token_ids for g in drawn[0]] == [g.token_ids for g in drawn[1]]
