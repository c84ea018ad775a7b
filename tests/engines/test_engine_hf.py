"""What only the Hugging Face engine does; what all engines do is in `test_engine_contract.py`."""

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, Qwen2Config, Qwen2ForCausalLM

from cooper_rl.config.data import GenerationConfig
from cooper_rl.engines.hf import HFEngine
from cooper_rl.errors import ModelError
from cooper_rl.models.packed.forward import can_pack
from tests.engines.test_engine_contract import (
    END,
    PAD,
    PROMPTS,
    expected_logprobs,
    flat,
    make_engine,
    make_model,
)
from tests.models.small_models import save_small


@pytest.fixture(scope="module")
def model() -> Qwen2ForCausalLM:
    return make_model(0)


def test_a_draw_does_not_depend_on_what_shares_its_batch(model: Qwen2ForCausalLM) -> None:
    engine = make_engine("hf", model)
    together = engine.generate(
        PROMPTS, GenerationConfig(max_new_tokens=24, batch_size=100), samples=4, seed=5
    )
    apart = engine.generate(PROMPTS, GenerationConfig(max_new_tokens=24, batch_size=4), samples=4, seed=5)
    assert [g.token_ids for g in flat(together)] == [g.token_ids for g in flat(apart)]


def test_no_more_completions_are_drawn_at_a_time_than_the_batch_holds(model: Qwen2ForCausalLM) -> None:
    """7 samples of a prompt in batches of 3: the same completions, in three batches for each prompt."""
    engine, sampled = make_engine("hf", model), GenerationConfig(max_new_tokens=24)
    num_rows: list[int] = []
    hook = model.lm_head.register_forward_hook(lambda _module, _given, logits: num_rows.append(len(logits)))
    few = engine.generate(PROMPTS, sampled.model_copy(update={"batch_size": 3}), samples=7, seed=5)
    hook.remove()
    assert max(num_rows) == 3
    assert [g.token_ids for g in flat(few)] == [
        g.token_ids for g in flat(engine.generate(PROMPTS, sampled, samples=7, seed=5))
    ]


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
        exact = expected_logprobs(trained, PROMPTS[0], generation, 1.0)
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
        flat(make_engine("hf", each).generate(PROMPTS, sampled, samples=4, seed=3))
        for each in (model, windowed)
    ]
    assert [g.token_ids for g in drawn[0]] == [g.token_ids for g in drawn[1]]


def test_completions_beyond_a_table_of_positions_are_refused_before_the_first_token(tmp_path: Path) -> None:
    """The 20th token of a completion after 3 is read by nobody, so that 22 positions hold it."""
    folder = save_small("opt", tmp_path, max_position_embeddings=22, ffn_dim=64, word_embed_proj_dim=32)
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    engine = HFEngine(model, end_ids=frozenset(), pad_id=PAD)
    ((drawn,),) = engine.generate([[5, 6, 7]], GenerationConfig(max_new_tokens=20), samples=1, seed=0)
    assert len(drawn.token_ids) == 20
    with pytest.raises(
        ModelError,
        match=r"its table holds 22 positions, and a prompt with its completion takes up to 23: lower "
        r"max_new_tokens=21, or use a model with rotary positions$",
    ):
        engine.generate([[5, 6, 7]], GenerationConfig(max_new_tokens=21), samples=1, seed=0)
