"""What holds for every engine: the Hugging Face engine, the same in a process of its own, vLLM (its CPU build
will do) and the shipped double.

`make test-vllm` sets up vLLM in an environment of its own and runs this file there; elsewhere its part is
skipped.
"""

from collections.abc import Callable, Iterator
from importlib.util import find_spec

import pytest
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from cooper_rl.config.data import GenerationConfig
from cooper_rl.config.engine import EngineConfig
from cooper_rl.engines.base import Engine, Generation
from cooper_rl.engines.hf import HFEngine
from cooper_rl.engines.separate import SeparateEngine
from cooper_rl.models.policy import Policy
from tests.stand_ins.scripted_engine import ScriptedEngine

END, PAD = 1, 0
PROMPTS = [[5, 6, 7], [8, 9, 10, 11, 12, 13, 14], [15], [16, 17, 18, 19]]
SAMPLED = GenerationConfig(max_new_tokens=24, temperature=0.8)
GREEDY = GenerationConfig(max_new_tokens=20, temperature=0.0)
SMALL = EngineConfig(kind="vllm", max_model_len=256, kv_cache_gib=0.05, max_num_seqs=64, enforce_eager=True)
"""vLLM as small as it starts."""

needs_vllm = pytest.mark.skipif(find_spec("vllm") is None, reason="vllm is not installed: make test-vllm")
VLLM = pytest.param("vllm", marks=[pytest.mark.vllm, needs_vllm])
MODELS = ["hf", "separate", VLLM]


def make_model(seed: int, *, is_tied: bool = False) -> Qwen2ForCausalLM:
    """Random weights, sharpened so that ends are drawn; heads of 32, the smallest that vLLM has.

    Tied embeddings are made small instead: large ones would let every token follow itself.
    """
    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=40, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=256, pad_token_id=PAD, eos_token_id=END,
        bos_token_id=None, tie_word_embeddings=is_tied,
    )  # fmt: skip
    model = Qwen2ForCausalLM(config).eval()
    with torch.no_grad():
        model.lm_head.weight.mul_(0.1 if is_tied else 12)
    return model


def as_policy(model: Qwen2ForCausalLM) -> Policy:
    """As far as an engine needs one: it has no tokenizer."""
    return Policy(model, None, frozenset({END}), PAD)


def make_engine(kind: str, model: Qwen2ForCausalLM) -> Engine:
    if kind == "vllm":
        from cooper_rl.engines.vllm import VLLMEngine

        return VLLMEngine(model, end_ids=frozenset({END}), config=SMALL)
    if kind == "separate":
        return SeparateEngine(as_policy(model), EngineConfig(process="own"))
    if kind == "hf":
        return HFEngine(model, end_ids=frozenset({END}), pad_id=PAD)
    ended, cut = (20, 21, END), tuple(range(2, 40))
    script = {tuple(prompt): [(prompt[0], *ended), (prompt[0], *cut)] for prompt in PROMPTS}
    return ScriptedEngine(script, end_ids=frozenset({END}))


@pytest.fixture(scope="module")
def engines() -> Iterator[Callable[..., Engine]]:
    """Every engine once; all are closed at the end, because vLLM's last words are for the whole process."""
    made: dict[tuple[str, bool], Engine] = {}

    def get(kind: str, *, is_tied: bool = False) -> Engine:
        if (kind, is_tied) not in made:
            made[kind, is_tied] = make_engine(kind, make_model(0, is_tied=is_tied))
        return made[kind, is_tied]

    yield get
    for engine in made.values():
        engine.close()


@pytest.fixture(scope="module")
def model() -> Qwen2ForCausalLM:
    """Has the weights of the engines under test."""
    return make_model(0)


@pytest.fixture(params=["hf", "separate", VLLM, "scripted"])
def engine(request, engines: Callable[..., Engine]) -> Engine:
    return engines(request.param)


@pytest.fixture(params=MODELS)
def real(request, engines: Callable[..., Engine]) -> Engine:
    """Without the double, which has no model."""
    return engines(request.param)


@pytest.fixture(params=MODELS)
def own(request, engines: Callable[..., Engine]) -> Engine:
    """An engine that a test may change."""
    return engines(request.param, is_tied=True)


def flat(groups: list[list[Generation]]) -> list[Generation]:
    return [generation for group in groups for generation in group]


def ids(groups: list[list[Generation]]) -> list[tuple[int, ...]]:
    return [generation.token_ids for generation in flat(groups)]


def expected_logprobs(
    model: Qwen2ForCausalLM, prompt: list[int], made: Generation, temperature: float
) -> torch.Tensor:
    with torch.no_grad():
        logits = model(torch.tensor([[*prompt, *made.token_ids]])).logits[0, len(prompt) - 1 : -1]
    logprobs = (logits / temperature).log_softmax(dim=1)
    return logprobs.gather(1, torch.tensor(made.token_ids)[:, None])[:, 0]


def greedy_ids(model: Qwen2ForCausalLM) -> list[tuple[int, ...]]:
    """What `transformers` itself generates."""
    return [
        tuple(
            model.generate(torch.tensor([prompt]), do_sample=False, max_new_tokens=20)[
                0, len(prompt) :
            ].tolist()
        )
        for prompt in PROMPTS
    ]


def test_groups_come_in_the_order_of_the_prompts_with_as_many_samples_as_asked(engine: Engine) -> None:
    """Prompts of lengths that an engine would sort by; the same prompts backwards give the same groups."""
    places = [3, 2, 1, 0]
    forwards = engine.generate(PROMPTS, SAMPLED, samples=3, seed=5)
    backwards = engine.generate(PROMPTS[::-1], SAMPLED, samples=3, seed=5, places=places)
    assert [len(group) for group in forwards] == [3] * 4
    assert ids(forwards) == ids(backwards[::-1])


def test_a_draw_does_not_depend_on_what_shares_its_batch(engine: Engine) -> None:
    together = engine.generate(PROMPTS, SAMPLED, samples=4, seed=5)
    apart = [
        engine.generate([prompt], SAMPLED, samples=4, seed=5, places=[place])[0]
        for place, prompt in enumerate(PROMPTS)
    ]
    assert ids(together) == ids(apart)
    fewer = engine.generate(PROMPTS, SAMPLED, samples=2, seed=5)
    assert ids(fewer) == ids([group[:2] for group in together])


def test_the_same_seed_gives_the_same_draws(engine: Engine) -> None:
    first, again = (engine.generate(PROMPTS, SAMPLED, samples=4, seed=7) for _ in range(2))
    assert ids(first) == ids(again)


def test_ended_completions_keep_their_end_token_and_cut_ones_their_last(engine: Engine) -> None:
    drawn = flat(engine.generate(PROMPTS, SAMPLED, samples=16, seed=1))
    assert {generation.finish_reason for generation in drawn} == {"stop", "length"}
    for generation in drawn:
        assert len(generation.token_ids) == len(generation.logprobs)
        if generation.finish_reason == "stop":
            assert generation.token_ids[-1] == END
            assert END not in generation.token_ids[:-1]
        else:
            assert len(generation.token_ids) == 24
            assert END not in generation.token_ids


def test_another_seed_gives_other_draws_and_samples_differ(real: Engine) -> None:
    first, other = (real.generate(PROMPTS, SAMPLED, samples=4, seed=seed) for seed in (7, 8))
    assert ids(first) != ids(other)
    assert all(len(set(ids([group]))) > 1 for group in first)


def test_greedy_equals_transformers_generate(real: Engine, model: Qwen2ForCausalLM) -> None:
    assert ids(real.generate(PROMPTS, GREEDY, samples=1, seed=0)) == greedy_ids(model)


@pytest.mark.parametrize("temperature", [0.8, 1.0])
def test_logprobs_are_those_of_the_model_at_the_temperature_of_the_draw(
    real: Engine, model: Qwen2ForCausalLM, temperature: float
) -> None:
    """fp32 on both sides: within 2e-4."""
    sampled = SAMPLED.model_copy(update={"temperature": temperature})
    drawn = real.generate(PROMPTS, sampled, samples=5, seed=3)
    for prompt, group in zip(PROMPTS, drawn, strict=True):
        for made in group:
            expected = expected_logprobs(model, prompt, made, temperature)
            torch.testing.assert_close(torch.tensor(made.logprobs), expected, atol=2e-4, rtol=1e-4)


def test_greedy_logprobs_are_those_of_the_model_as_it_is(real: Engine, model: Qwen2ForCausalLM) -> None:
    for prompt, (made,) in zip(PROMPTS, real.generate(PROMPTS, GREEDY, samples=1, seed=0), strict=True):
        expected = expected_logprobs(model, prompt, made, 1.0)
        torch.testing.assert_close(torch.tensor(made.logprobs), expected, atol=2e-4, rtol=1e-4)


def test_logprobs_of_a_nucleus_are_renormalised_over_it(real: Engine, model: Qwen2ForCausalLM) -> None:
    """400 first tokens: only those of the nucleus are drawn, and their probabilities there sum to 1."""
    nucleus = GenerationConfig(max_new_tokens=1, top_p=0.5)
    drawn = real.generate([PROMPTS[0]], nucleus, samples=400, seed=2)[0]
    with torch.no_grad():
        ordered, order = model(torch.tensor([PROMPTS[0]])).logits[0, -1].softmax(dim=0).sort(descending=True)
    size = int((ordered.cumsum(dim=0) < 0.5).sum()) + 1
    found = {made.token_ids[0]: made.logprobs[0] for made in drawn}
    assert set(found) == set(order[:size].tolist())
    assert torch.tensor(list(found.values())).exp().sum().item() == pytest.approx(1, abs=1e-4)


def test_the_frequency_of_a_first_token_follows_the_model(real: Engine, model: Qwen2ForCausalLM) -> None:
    """1,000 draws: each share lies within 4 standard errors (at most .064) of its probability."""
    drawn = real.generate([PROMPTS[0]], GenerationConfig(max_new_tokens=1), samples=1000, seed=2)[0]
    counts = torch.bincount(torch.tensor([made.token_ids[0] for made in drawn]), minlength=40) / 1000
    with torch.no_grad():
        expected = model(torch.tensor([PROMPTS[0]])).logits[0, -1].softmax(dim=0)
    assert (counts - expected).abs().max() < 4 * (0.25 / 1000) ** 0.5


def test_after_an_update_greedy_outputs_are_those_of_the_updated_model(own: Engine) -> None:
    """To and fro, with tied embeddings: what was cached of the old weights would show."""
    models = [make_model(seed, is_tied=True) for seed in (0, 1, 0)]
    expected = [greedy_ids(model) for model in models]
    assert expected[0] != expected[1]
    for model, tokens in zip(models, expected, strict=True):
        own.load_weights(iter(model.state_dict().items()))
        assert ids(own.generate(PROMPTS, GREEDY, samples=1, seed=0)) == tokens


def test_an_engine_that_slept_goes_on_with_the_weights_that_it_is_given(own: Engine) -> None:
    other = make_model(2, is_tied=True)
    own.sleep()
    own.sleep()
    own.load_weights(iter(other.state_dict().items()))
    assert ids(own.generate(PROMPTS, GREEDY, samples=1, seed=0)) == greedy_ids(other)
