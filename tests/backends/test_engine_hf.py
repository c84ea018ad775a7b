"""The Hugging Face engine against `transformers` itself on a hand-made random model."""

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


def test_greedy_equals_transformers_generate(model: Qwen2ForCausalLM, engine: HFEngine) -> None:
    greedy = GenerationConfig(temperature=0.0, max_new_tokens=20)
    for prompt, (generation,) in zip(
        PROMPTS, engine.generate(PROMPTS, greedy, samples=1, seed=0), strict=True
    ):
        expected = model.generate(torch.tensor([prompt]), do_sample=False, max_new_tokens=20)[
            0, len(prompt) :
        ]
        assert list(generation.token_ids) == expected.tolist()


def test_logprobs_are_those_of_a_plain_forward_pass(model: Qwen2ForCausalLM, engine: HFEngine) -> None:
    drawn = engine.generate(PROMPTS, GenerationConfig(temperature=0.8, max_new_tokens=24), samples=5, seed=3)
    for prompt, group in zip(PROMPTS, drawn, strict=True):
        for generation in group:
            ids = torch.tensor([[*prompt, *generation.token_ids]])
            with torch.no_grad():
                expected = (model(ids).logits[0, len(prompt) - 1 : -1] / 0.8).log_softmax(dim=1)
            picked = expected.gather(1, torch.tensor(generation.token_ids)[:, None])[:, 0]
            torch.testing.assert_close(torch.tensor(generation.logprobs), picked, atol=2e-4, rtol=1e-4)


def test_a_draw_does_not_depend_on_what_shares_its_batch(engine: HFEngine) -> None:
    together = engine.generate(
        PROMPTS, GenerationConfig(max_new_tokens=24, batch_size=100), samples=4, seed=5
    )
    apart = engine.generate(PROMPTS, GenerationConfig(max_new_tokens=24, batch_size=4), samples=4, seed=5)
    assert [g.token_ids for g in flat(together)] == [g.token_ids for g in flat(apart)]


def test_shares_of_the_prompts_draw_what_the_whole_draws(engine: HFEngine) -> None:
    sampled = GenerationConfig(max_new_tokens=24)
    whole = engine.generate(PROMPTS, sampled, samples=3, seed=5)
    for rank in (0, 1):
        places = range(rank, len(PROMPTS), 2)
        share = engine.generate(PROMPTS[rank::2], sampled, samples=3, seed=5, places=places)
        assert [g.token_ids for g in flat(share)] == [g.token_ids for g in flat(whole[rank::2])]


def test_another_seed_gives_other_draws_and_the_same_seed_the_same(engine: HFEngine) -> None:
    sampled = GenerationConfig(max_new_tokens=24)
    first, again, other = (
        flat(engine.generate(PROMPTS, sampled, samples=4, seed=seed)) for seed in (7, 7, 8)
    )
    assert first == again
    assert first != other


def test_a_finished_completion_ends_with_its_end_token_and_a_cut_one_keeps_its_last_token(
    engine: HFEngine,
) -> None:
    """The release drops the last token of every completion as if it were the end token."""
    drawn = flat(engine.generate(PROMPTS, GenerationConfig(max_new_tokens=24), samples=16, seed=1))
    reasons = {generation.finish_reason for generation in drawn}
    assert reasons == {"stop", "length"}
    for generation in drawn:
        assert len(generation.token_ids) == len(generation.logprobs)
        if generation.finish_reason == "stop":
            assert generation.token_ids[-1] == END
            assert END not in generation.token_ids[:-1]
        else:
            assert len(generation.token_ids) == 24
            assert END not in generation.token_ids


def test_the_frequency_of_a_first_token_follows_the_model(model: Qwen2ForCausalLM, engine: HFEngine) -> None:
    """4,000 draws: each share lies within 4 standard errors (at most .032) of its probability."""
    drawn = engine.generate([[5, 6, 7]], GenerationConfig(max_new_tokens=1), samples=4000, seed=2)[0]
    counts = torch.bincount(torch.tensor([g.token_ids[0] for g in drawn]), minlength=40) / 4000
    with torch.no_grad():
        expected = model(torch.tensor([[5, 6, 7]])).logits[0, -1].softmax(dim=0)
    assert (counts - expected).abs().max() < 4 * (0.25 / 4000) ** 0.5


def test_top_p_keeps_only_the_nucleus(model: Qwen2ForCausalLM, engine: HFEngine) -> None:
    nucleus = GenerationConfig(max_new_tokens=1, top_p=0.5)
    drawn = engine.generate([[5, 6, 7]], nucleus, samples=500, seed=2)[0]
    with torch.no_grad():
        ordered, order = model(torch.tensor([[5, 6, 7]])).logits[0, -1].softmax(dim=0).sort(descending=True)
    size = int((ordered.cumsum(dim=0) < 0.5).sum()) + 1
    assert {g.token_ids[0] for g in drawn} == set(order[:size].tolist())


def test_loaded_weights_change_the_output_in_place(model: Qwen2ForCausalLM) -> None:
    torch.manual_seed(1)
    own = Qwen2ForCausalLM(model.config).eval()
    engine = HFEngine(own, end_ids=frozenset({END}), pad_id=PAD)
    engine.load_weights(iter(model.state_dict().items()))
    greedy = GenerationConfig(temperature=0.0, max_new_tokens=8)
    source = HFEngine(model, end_ids=frozenset({END}), pad_id=PAD)
    assert engine.generate(PROMPTS, greedy, samples=1, seed=0) == source.generate(
        PROMPTS, greedy, samples=1, seed=0
    )


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
