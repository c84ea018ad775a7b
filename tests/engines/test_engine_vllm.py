"""The vLLM engine alone: what is wrong with a start or a call, sleep, and shared prompts.

What it has in common with the others is in `test_engine_contract.py`.
"""

import multiprocessing
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from types import SimpleNamespace

import pytest
import torch
from torch import distributed
from transformers import Qwen2Config, Qwen2ForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM

from cooper_rl.config.data import GenerationConfig
from cooper_rl.config.engine import EngineConfig
from cooper_rl.distributed.ranks import join_ranks
from cooper_rl.engines.vllm import VLLMEngine, explain, read_output
from cooper_rl.errors import ConfigError, ModelError, TrainingError
from tests.engines.test_engine_contract import END, GREEDY, PROMPTS, SMALL, make_model, needs_vllm

# vLLM 0.32.0's own words.
TOO_LONG = (
    "1 validation error for ModelConfig Value error, User-specified max_model_len (9999) is greater than the "
    "derived max_model_len (max_position_embeddings=256 or model_max_length=None in model's config.json)."
)
NO_BLOCKS = "No available memory for the cache blocks. Try increasing `gpu_memory_utilization`."
NO_SEQUENCE = (
    "To serve at least one request with the model's max seq len (32768), (0.88 GiB KV cache is needed"
)
NOT_FREE = (
    "Free memory on device cuda:0 (20.0/79.1 GiB) on startup is less than desired GPU memory utilization "
    "(0.4, 31.6 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes."
)
UNKNOWN = "Model architectures ['FooForCausalLM'] are not supported for now. Supported architectures: ..."


@pytest.mark.parametrize("reason", ["abort", "error", None])
def test_a_completion_that_vllm_gave_up_is_no_draw(reason: str | None) -> None:
    flat = SimpleNamespace(logprobs=[-0.5, -0.25, -2.0], start_indices=[0, 1])
    output = SimpleNamespace(token_ids=[3, 4], logprobs=flat, finish_reason="length")
    assert read_output(output).logprobs == (-0.5, -0.25)
    output.finish_reason = reason
    with pytest.raises(TrainingError, match=rf"a completion of 2 tokens with finish_reason={reason!r}; read"):
        read_output(output)


@pytest.mark.parametrize(
    ("message", "kind", "remedy"),
    [
        (TOO_LONG, ConfigError, "engine.max_model_len=9999 is more than the model was made for: lower it"),
        (NO_BLOCKS, ConfigError, "too small for one sequence .* raise engine.kv_cache_gib"),
        (NO_SEQUENCE, ConfigError, "engine.max_model_len=9999: lower that, or raise"),
        (NOT_FREE, ConfigError, "too little memory for vLLM: lower engine.gpu_memory_utilization=0.4"),
        ("CUDA out of memory. Tried to allocate 2 GiB", ConfigError, "too little memory for vLLM"),
        (UNKNOWN, ModelError, "cannot run this model: .*FooForCausalLM.*; use engine.kind=hf"),
        ("the driver is too old", ModelError, "does not start: the driver is too old; .* engine.kind=hf"),
    ],
)
def test_a_failure_to_start_says_what_to_change(message: str, kind: type[Exception], remedy: str) -> None:
    found = explain(ValueError(message), EngineConfig(kind="vllm", max_model_len=9999))
    with pytest.raises(kind, match=remedy):
        raise found


def test_a_missing_package_names_what_to_install(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(
        ConfigError, match=r"engine.kind=vllm: .*pip install '\.\[vllm\]' in a clone, .*; or set"
    ):
        VLLMEngine(make_model(0), end_ids=frozenset({END}), config=SMALL)


@pytest.fixture(scope="module")
def engine() -> Iterator[VLLMEngine]:
    with closing(VLLMEngine(make_model(0), end_ids=frozenset({END}), config=SMALL)) as made:
        yield made


@needs_vllm
@pytest.mark.vllm
def test_a_prompt_that_leaves_no_room_is_refused(engine: VLLMEngine) -> None:
    """vLLM would cut the completion short and call it one that reached its limit."""
    with pytest.raises(ConfigError, match=r"a prompt of 200 tokens and .*=100 are more than the 256 tokens"):
        engine.generate([[5] * 200], GenerationConfig(max_new_tokens=100), samples=1, seed=0)


@needs_vllm
@pytest.mark.vllm
def test_the_prompt_of_a_group_is_computed_once(engine: VLLMEngine, monkeypatch) -> None:
    """A block of the cache holds 128 tokens on a CPU: of 150, seven of eight samples find the first 128."""
    outputs = []
    generate = engine._llm.generate
    monkeypatch.setattr(
        engine._llm, "generate", lambda *args, **kw: outputs.extend(generate(*args, **kw)) or outputs
    )
    drawn = engine.generate([[5, 6, 7] * 50], GenerationConfig(max_new_tokens=4), samples=8, seed=0)
    assert len(drawn[0]) == 8
    assert [output.num_cached_tokens for output in outputs] == [0] + [128] * 7


@needs_vllm
@pytest.mark.vllm
def test_a_sleeping_engine_wants_weights_first(engine: VLLMEngine) -> None:
    engine.sleep()
    with pytest.raises(TrainingError, match=r"sleeps and has no weights: load_weights comes before generate"):
        engine.generate(PROMPTS, GREEDY, samples=1, seed=0)
    engine.load_weights(iter(make_model(0).state_dict().items()))
    assert len(engine.generate(PROMPTS, GREEDY, samples=1, seed=0)) == len(PROMPTS)


@needs_vllm
@pytest.mark.vllm
def test_a_cache_of_the_old_weights_is_no_cache_of_the_new_ones(engine: VLLMEngine) -> None:
    """As long as a request is under way vLLM refuses to empty it, with a warning that is not shown."""
    params = engine._sampling_params(max_tokens=4, detokenize=False)
    engine._llm.llm_engine.add_request("under way", {"prompt_token_ids": PROMPTS[0]}, params)
    engine._llm.llm_engine.step()
    with pytest.raises(TrainingError, match=r"keeps keys and values of the old weights"):
        engine.load_weights(iter(make_model(0).state_dict().items()))
    while engine._llm.llm_engine.has_unfinished_requests():
        engine._llm.llm_engine.step()
    engine.load_weights(iter(make_model(0).state_dict().items()))


@needs_vllm
@pytest.mark.vllm
def test_the_group_of_the_processes_that_train_outlives_their_engines() -> None:
    """In a process of its own: here an engine stands that has another group."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        assert pool.submit(_close_two_engines).result() == [True, True]


def _close_two_engines() -> list[bool]:
    """Whether there is a process group after each."""
    join_ranks(0, 1, device=torch.device("cpu"), timeout_seconds=60)
    found: list[bool] = []
    for seed in (0, 1):
        VLLMEngine(make_model(seed), end_ids=frozenset({END}), config=SMALL).close()
        found.append(distributed.is_initialized())
    return found


class UnheardOfForCausalLM(Qwen2ForCausalLM):
    """No release of vLLM knows it."""


@needs_vllm
@pytest.mark.vllm
@pytest.mark.parametrize(
    ("values", "kind", "message"),
    [
        (
            {"max_model_len": 9999},
            ConfigError,
            "engine.max_model_len=9999 is more than the model was made for",
        ),
        ({"kv_cache_gib": 1e-5}, ConfigError, "KV cache is too small for one sequence"),
        ({"kv_cache_gib": 1e5}, ConfigError, "too little memory for vLLM: .*engine.kv_cache_gib=100000"),
    ],
)
def test_a_start_that_cannot_be_is_explained(values, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        VLLMEngine(make_model(0), end_ids=frozenset({END}), config=SMALL.model_copy(update=values))


@needs_vllm
@pytest.mark.vllm
@pytest.mark.parametrize(
    "error",
    [
        Exception("WorkerProc initialization failed due to an exception in a background process."),
        AssertionError("CuMem allocator can only be used for one instance per process."),
    ],
    ids=["of a worker", "of a check"],
)
def test_whatever_vllm_raises_at_its_start_is_explained(monkeypatch, error: Exception) -> None:
    """Its words for what only GPUs can meet."""
    import vllm

    def fail(**_: object) -> None:
        raise error

    monkeypatch.setattr(vllm, "LLM", fail)
    with pytest.raises(ModelError, match=f"vLLM does not start: {str(error)[:30]}.*engine.kind=hf"):
        VLLMEngine(make_model(0), end_ids=frozenset({END}), config=SMALL)


@needs_vllm
@pytest.mark.vllm
def test_a_model_that_vllm_does_not_know_is_refused() -> None:
    model = UnheardOfForCausalLM(make_model(0).config)
    with pytest.raises(ModelError, match=r"vLLM cannot run this model: .*UnheardOfForCausalLM"):
        VLLMEngine(model, end_ids=frozenset({END}), config=SMALL)


@needs_vllm
@pytest.mark.vllm
def test_a_failure_while_generating_names_the_other_engine() -> None:
    """The CPU build has no attention for heads of 8, and finds out when it generates."""
    config = Qwen2Config(
        vocab_size=40, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=256,
    )  # fmt: skip
    with pytest.raises(TrainingError, match=r"vLLM failed while generating: .*head_dim=8.*engine.kind=hf"):
        VLLMEngine(Qwen2ForCausalLM(config), end_ids=frozenset({END}), config=SMALL)


@needs_vllm
@pytest.mark.vllm
def test_weights_that_vllm_puts_wrong_are_noticed() -> None:
    """Its CPU build takes the experts of a mixture from a disk, and not from memory."""
    config = Qwen3MoeConfig(
        vocab_size=64, hidden_size=64, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        head_dim=32, max_position_embeddings=256, num_experts=4, num_experts_per_tok=2,
        moe_intermediate_size=64,
    )  # fmt: skip
    torch.manual_seed(0)
    model = Qwen3MoeForCausalLM(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim > 1:
                weight.mul_(8)
    with pytest.raises(ModelError, match=r"Qwen3MoeForCausalLM than the model itself: they differ by"):
        VLLMEngine(model, end_ids=frozenset({END}), config=SMALL)
