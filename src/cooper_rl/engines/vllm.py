"""The vLLM engine (row 6): continuous batching and paged attention, in the process that trains.

It starts with invented weights and takes the policy's at once, and again after every update: nothing goes
through a disk. Prompts of a group share their prefix in the cache. Of several processes that train together
each has an engine of its own, on its own GPU. Prompts and generations are token ids. Adapters are merged
before their weights come here.
"""

# pyright: reportMissingImports=false
# vLLM is not among the packages that the checks run with.

import contextlib
import copy
import gc
import os
from collections.abc import Generator, Iterable, Sequence
from typing import Any

import torch
from torch import distributed

from cooper_rl.config.data import GenerationConfig
from cooper_rl.config.engine import EngineConfig
from cooper_rl.engines.base import Generation
from cooper_rl.errors import ConfigError, CooperError, ModelError, TrainingError, how_to_install
from cooper_rl.machine.scratch import scratch_folder
from cooper_rl.randomness import derive_seed
from cooper_rl.schema.data import FinishReason
from cooper_rl.schema.texts import in_one_line

ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the engine's core in this process, where the weights are
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",
}
"""Read by vLLM when it is imported; what the user has set stays, but for the first."""
MAX_DIFFERENCE = 0.3
"""Mean absolute difference, in nats, from the model's own log-probabilities, beyond any rounding to bf16."""


class VLLMEngine:
    """Implements `Engine` on a copy of the policy's weights."""

    def __init__(self, model: Any, *, end_ids: frozenset[int], config: EngineConfig) -> None:
        """Start vLLM for the architecture of `model`, with its weights.

        Raises:
            ConfigError: vLLM is not installed, or memory or lengths do not fit; says what to change.
            ModelError: vLLM cannot run this model, or computes something else with its weights.
            TrainingError: vLLM failed.
        """
        self._config = config
        self._end_ids = sorted(end_ids)
        self._is_asleep = self._has_cache_asleep = False
        self._has_own_group = not distributed.is_initialized()
        """Else it is that of the processes that train."""
        self._llm, self._sampling_params = _start(model, config, self._has_own_group)
        self._max_model_len = int(self._llm.model_config.max_model_len)
        try:
            self.load_weights(iter(model.state_dict().items()))
            self._check_probabilities(model)
        except CooperError:
            self.close()
            raise

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        generation: GenerationConfig,
        *,
        samples: int,
        seed: int,
        places: Sequence[int] | None = None,
    ) -> list[list[Generation]]:
        """See `Engine.generate`. Every completion is a request with its own seed.

        Raises:
            ConfigError: a prompt leaves no room for `max_new_tokens`.
            TrainingError: vLLM failed, or sleeps.
        """
        self._check_room(prompts, generation)
        if self._is_asleep:
            raise TrainingError("the engine sleeps and has no weights: load_weights comes before generate")
        if self._has_cache_asleep:
            # Only now and not with the weights: VerifyRM's update lies in between, and uses the memory of
            # the cache.
            self._llm.wake_up(tags=["kv_cache"])
            self._has_cache_asleep = False
        numbers = range(len(prompts)) if places is None else places
        # One request per completion: with `n` > 1 vLLM makes the seeds of all but the first itself, and a
        # completion could not be drawn again alone. The prompt is computed once all the same, by the prefix
        # cache.
        requests = [{"prompt_token_ids": list(prompt)} for prompt in prompts for _ in range(samples)]
        params = [
            self._sampling_params(
                temperature=generation.temperature,
                top_p=generation.top_p,
                max_tokens=generation.max_new_tokens,
                seed=derive_seed(seed, number, sample),
                stop_token_ids=self._end_ids,
                logprobs=0,
                flat_logprobs=True,
                detokenize=False,
            )
            for number in numbers
            for sample in range(samples)
        ]
        stance = "force_eager" if self._config.enforce_eager else "default"
        try:
            # enforce_eager covers vLLM's own graphs, not the functions that it decorates with
            # torch.compile.
            with torch.compiler.set_stance(stance):
                outputs = self._llm.generate(requests, params, use_tqdm=False)
        except (RuntimeError, ValueError) as error:
            raise TrainingError(f"vLLM failed while generating: {error}; use engine.kind=hf") from error
        drawn = [read_output(output.outputs[0]) for output in outputs]
        return [drawn[start : start + samples] for start in range(0, len(drawn), samples)]

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Copy weights over vLLM's own, wherever its kernels keep them; what was cached is forgotten.

        Raises:
            TrainingError: vLLM still holds on to what it cached.
        """
        if self._is_asleep:
            # Level 2 sleep discards weights, so that waking gives memory with anything in it, until the
            # copy below.
            self._llm.wake_up(tags=["weights"])
            self._is_asleep = False
        if self._config.tensor_parallel_size > 1:
            weights = [(name, tensor.detach().cpu()) for name, tensor in weights]  # they cross processes
        # vLLM renames, joins and cuts tensors for its kernels; its own loader knows how, our names are
        # those of the checkpoint.
        self._llm.collective_rpc("reload_weights", kwargs={"weights_iterator": weights})
        if not self._llm.reset_prefix_cache():  # which it says in a warning only
            raise TrainingError(
                "vLLM keeps keys and values of the old weights, because requests are still under way: use "
                "engine.kind=hf"
            )

    def sleep(self) -> None:
        """See `Engine.sleep`: weights and KV cache leave the GPU."""
        if self._config.sleep and not self._is_asleep:
            # Level 1 would keep a copy of the weights in CPU memory, which the next `load_weights`
            # overwrites anyway.
            self._llm.sleep(level=2)
            self._is_asleep = self._has_cache_asleep = True

    def close(self) -> None:
        """See `Engine.close`: ends vLLM's processes and frees its memory."""
        with contextlib.nullcontext() if self._has_own_group else _group_kept():
            # `del` alone leaves workers and their GPU memory until the garbage collector finds a cycle.
            self._llm.llm_engine.engine_core.shutdown()
        del self._llm
        _clean_up(self._has_own_group)

    @torch.no_grad()
    def _check_probabilities(self, model: Any) -> None:
        """Compare some draws with the model itself: weights that vLLM put wrong would go unnoticed."""
        # Any tokens that every vocabulary has: the numbers are compared, not the texts.
        prompts = torch.arange(32, device=model.device).view(4, 8)
        drawn = self.generate(prompts.tolist(), GenerationConfig(max_new_tokens=1), samples=8, seed=0)
        tokens = torch.tensor([[each.token_ids[0] for each in row] for row in drawn], device=model.device)
        found = torch.tensor([[each.logprobs[0] for each in row] for row in drawn], device=model.device)
        own = model(input_ids=prompts, use_cache=False).logits[:, -1].float().log_softmax(dim=1)
        difference = (found - own.gather(1, tokens)).abs().mean().item()
        # Written so that NaN is refused too.
        if not difference <= MAX_DIFFERENCE:
            raise ModelError(
                f"vLLM computes other probabilities with the weights of {type(model).__name__} than the "
                f"model itself: they differ by {difference:.2f} nats; use engine.kind=hf"
            )

    def _check_room(self, prompts: Sequence[Sequence[int]], generation: GenerationConfig) -> None:
        longest = max((len(prompt) for prompt in prompts), default=0)
        if longest + generation.max_new_tokens > self._max_model_len:
            raise ConfigError(
                f"a prompt of {longest} tokens and generation.max_new_tokens={generation.max_new_tokens} are "
                f"more than the {self._max_model_len} tokens that vLLM was started for: raise "
                "engine.max_model_len (up to what the model was made for) or lower max_new_tokens"
            )


def read_output(output: Any) -> Generation:
    """A completion of vLLM's.

    Raises:
        TrainingError: vLLM gave it up (`abort`, `error`): its tokens are no draw of the policy's.
    """
    reasons: dict[str, FinishReason] = {"stop": "stop", "length": "length"}
    if output.finish_reason not in reasons:
        raise TrainingError(
            f"vLLM ended a completion of {len(output.token_ids)} tokens with "
            f"finish_reason={output.finish_reason!r}; read its log above, and start again with the same "
            "arguments"
        )
    flat = output.logprobs
    # Of every token the drawn one stands first.
    logprobs = tuple(flat.logprobs[start] for start in flat.start_indices)
    return Generation(tuple(output.token_ids), logprobs, reasons[output.finish_reason])


def _start(model: Any, config: EngineConfig, has_own_group: bool) -> tuple[Any, Any]:
    """A started `vllm.LLM`, and the class of its sampling parameters."""
    is_one_of_several = not has_own_group and distributed.get_world_size() > 1
    if is_one_of_several and config.tensor_parallel_size > 1:
        raise ConfigError(
            f"engine.tensor_parallel_size={config.tensor_parallel_size}: each of the "
            f"{distributed.get_world_size()} processes that train has an engine on its own GPU; set it to 1"
        )
    # The configuration may name no class, or another one than this model has.
    own = copy.deepcopy(model.config)
    own.architectures = [type(model).__name__]
    with _environment(), scratch_folder() as folder:
        try:
            from vllm import LLM, SamplingParams
            from vllm.platforms import current_platform
        except ImportError as error:
            raise ConfigError(
                f"engine.kind=vllm: {error}; {how_to_install('vllm')}; or set engine.kind=hf"
            ) from error
        own.save_pretrained(folder)
        has_gpu = not current_platform.is_cpu()
        dtype = config.dtype if config.dtype != "auto" else "bfloat16" if has_gpu else "float32"
        try:
            llm = LLM(
                model=str(folder),
                skip_tokenizer_init=True,
                # Random weights: the real ones are in this process, and reading them from a disk would take
                # minutes.
                load_format="dummy",
                # Else a file beside the model could change temperature and top_p behind our configuration.
                generation_config="vllm",
                dtype=dtype,
                max_model_len=config.max_model_len,
                max_num_seqs=config.max_num_seqs,
                gpu_memory_utilization=config.gpu_memory_utilization,
                kv_cache_memory_bytes=None
                if config.kv_cache_gib is None
                else int(config.kv_cache_gib * 2**30),
                tensor_parallel_size=config.tensor_parallel_size,
                # torchrun has made the processes and their group already; vLLM must neither fork nor
                # rendezvous again.
                distributed_executor_backend="external_launcher" if is_one_of_several else None,
                enforce_eager=config.enforce_eager,
                enable_sleep_mode=config.sleep and has_gpu,
                # A group's prompt is asked for `group_size` times.
                enable_prefix_caching=True,
                logprobs_mode="processed_logprobs",  # of the distribution that the token was drawn from
            )
        except Exception as error:  # of a worker, or of a check of its own, it has no better kind
            _clean_up(has_own_group)
            raise explain(error, config) from error
    return llm, SamplingParams


def _clean_up(has_own_group: bool) -> None:
    """Free vLLM's memory and end its process groups, but not that of the processes that train."""
    from vllm.distributed import cleanup_dist_env_and_memory, destroy_model_parallel

    if has_own_group:
        cleanup_dist_env_and_memory()
        return
    destroy_model_parallel()
    gc.collect()
    torch.cuda.empty_cache()


@contextlib.contextmanager
def _group_kept() -> Generator[None]:
    """vLLM ends with itself whatever process group there is."""
    from vllm.distributed import parallel_state

    destroy = parallel_state.destroy_distributed_environment
    # The group is also the trainer's: the next collective call after its end would fail on all ranks.
    parallel_state.destroy_distributed_environment = lambda: None
    try:
        yield
    finally:
        parallel_state.destroy_distributed_environment = destroy


@contextlib.contextmanager
def _environment() -> Generator[None]:
    """Environment variables for vLLM. Its changes to this process are taken back.

    On a CPU it preloads libraries into every later child process and forbids `torch.set_num_threads`.
    """
    before, set_num_threads = dict(os.environ), torch.set_num_threads
    os.environ.update(ENVIRONMENT | {key: before[key] for key in ENVIRONMENT if key in before})
    # Not the user's choice: weights are handed over as tensors of this process.
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    try:
        yield
    finally:
        # vLLM replaces the function by one that refuses; `limit_threads` needs it.
        torch.set_num_threads = set_num_threads
        for key in os.environ.keys() - before.keys():
            if not key.startswith("VLLM_"):
                del os.environ[key]
        os.environ.update({key: value for key, value in before.items() if not key.startswith("VLLM_")})


def explain(error: Exception, config: EngineConfig) -> ConfigError | ModelError:
    """vLLM's own message, and what to change."""
    text = in_one_line(error)
    if "max_model_len" in text and "greater than the derived" in text:
        return ConfigError(
            f"engine.max_model_len={config.max_model_len} is more than the model was made for: lower it, or "
            f"leave it out for the most that the model takes ({text[:300]})"
        )
    if "KV cache" in text or "cache blocks" in text or "max seq len" in text:
        return ConfigError(
            "vLLM's KV cache is too small for one sequence of engine.max_model_len="
            f"{config.max_model_len}: lower that, or raise engine.kv_cache_gib={config.kv_cache_gib} or "
            f"engine.gpu_memory_utilization={config.gpu_memory_utilization} ({text[:300]})"
        )
    if "memory" in text.lower():
        return ConfigError(
            f"there is too little memory for vLLM: lower engine.gpu_memory_utilization="
            f"{config.gpu_memory_utilization} or engine.kv_cache_gib={config.kv_cache_gib}, or free what "
            f"others hold ({text[:300]})"
        )
    if "architectures" in text and "not supported" in text:
        return ModelError(f"vLLM cannot run this model: {text[:300]}; use engine.kind=hf")
    return ModelError(f"vLLM does not start: {text[:600]}; mend that, or use engine.kind=hf")
