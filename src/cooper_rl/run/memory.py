"""Checks from the models' config.json that a configuration fits on a GPU, and how fast its steps can be.

Arithmetic: `models/memory.py` and `models/budget.py`.
"""

import logging
from collections.abc import Mapping
from typing import Any

import torch
from transformers import PretrainedConfig

from cooper_rl.config.engine import EngineConfig
from cooper_rl.config.infrastructure import is_stored
from cooper_rl.config.root import Config
from cooper_rl.errors import ConfigError, ModelError
from cooper_rl.models.budget import Card, Work, describe_budget, make_budget
from cooper_rl.models.decoys import MORE_RIVALS
from cooper_rl.models.memory import (
    GIB,
    Plan,
    Use,
    cache_bytes,
    check_plan,
    describe_plan,
    plan_memory,
)
from cooper_rl.models.policy import explain_unreadable
from cooper_rl.models.shape import Shape, count_weights, read_shape
from cooper_rl.storage.models import find_model

logger = logging.getLogger(__name__)

PROMPT_TOKENS = 512
"""Tokens of a prompt, for the engine's cache."""
VLLM_SEQUENCES = 1024
"""Sequences that vLLM draws at a time on a large card, see `EngineConfig.max_num_seqs`."""


def make_plan(
    config: Config,
    *,
    policy: Mapping[str, Any],
    verify_rm: Mapping[str, Any],
    num_processes: int,
    card_bytes: int,
) -> Plan:
    """The memory that `train_cooper` needs on each GPU.

    Args:
        config: of the run.
        policy: the policy's config.json.
        verify_rm: VerifyRM's, or its backbone's.
        num_processes: that train together.
        card_bytes: memory of each GPU, of which vLLM takes a share.

    Raises:
        ConfigError: an architecture whose sizes are not known.
    """
    cooper, distributed, engine = config.cooper, config.distributed, config.engine
    shape = read_shape(policy, place="the policy's config.json")
    is_vllm, is_elsewhere = engine.kind == "vllm", engine.devices is not None
    use = Use(
        num_processes=num_processes,
        zero_stage=distributed.zero_stage,
        is_bfloat16=cooper.precision != "float32",
        is_offloaded=distributed.offload_optimizer,
        is_checkpointed=cooper.gradient_checkpointing,
        adapter_rank=cooper.policy.lora.rank if cooper.policy.lora else None,
        trains_verify_rm=cooper.trains_verify_rm,
        max_tokens=cooper.max_tokens_per_batch,
        engine_bytes=0 if is_elsewhere else _engine_bytes(config, shape, card_bytes=card_bytes),
        engine_remedy=_engine_remedy(engine),
        engine_weight_bytes=_engine_weight_bytes(config),
        engine_sleeps=not is_vllm or engine.sleep if engine.process == "same" else is_elsewhere,
        engine_wakes_early=is_vllm and engine.process == "same",
        has_gate=cooper.gate is not None,
        has_average=cooper.reward.ema_decay > 0,
    )
    return plan_memory(shape, read_shape(verify_rm, place="VerifyRM's config.json"), use)


def _engine_bytes(config: Config, shape: Shape, *, card_bytes: int) -> int:
    """vLLM's share, which must be free when it starts; with a KV cache of a size of its own it takes that and
    its weights, whatever the share is. Of the HF engine the cache."""
    engine, generation = config.engine, config.cooper.generation
    if engine.kind == "hf":
        num_cached = generation.batch_size * (PROMPT_TOKENS + generation.max_new_tokens)
        return cache_bytes(shape, num_tokens=num_cached)
    share = round(engine.gpu_memory_utilization * card_bytes)
    if engine.kv_cache_gib is None:
        return share
    weights = (4 if engine.dtype == "float32" else 2) * count_weights(shape) // engine.tensor_parallel_size
    return max(share, weights + round(engine.kv_cache_gib * GIB))


def _engine_remedy(engine: EngineConfig) -> str:
    if engine.kind == "hf":
        return "lower cooper.generation.batch_size"
    also = "" if engine.kv_cache_gib is None else " and engine.kv_cache_gib"
    return f"lower engine.gpu_memory_utilization{also}"


def _engine_weight_bytes(config: Config) -> int:
    """The HF engine copies weights in bf16, those of an adapted policy, and all in a process of its own; vLLM
    counts its own."""
    is_adapted = config.cooper.policy.lora is not None
    if config.engine.kind == "vllm" or config.engine.devices is not None:
        return 0
    if config.engine.process == "own":
        return 4 if config.cooper.precision == "float32" else 2
    if config.distributed.zero_stage and not is_adapted:
        return 0
    if config.cooper.precision != "float32":
        return 2
    return 4 if is_adapted else 0


def check_memory(config: Config, *, policy: Any, verify_rm: Any, num_processes: int) -> None:
    """Refuse models that do not fit on this process's GPU; nothing on a CPU, or where sizes are not known.

    Raises:
        ConfigError: with what is needed, what there is, and what to lower.
    """
    if policy.device.type != "cuda":
        return
    card_bytes = torch.cuda.get_device_properties(policy.device).total_memory
    try:
        plan = make_plan(
            config,
            policy=policy.config.to_dict(),
            verify_rm=verify_rm.config.to_dict(),
            num_processes=num_processes,
            card_bytes=card_bytes,
        )
    except ConfigError as error:
        logger.warning("whether the models fit on the GPU is not known: %s", error)
        return
    logger.info("memory of the phase '%s':\n%s", plan.phase, describe_plan(plan))
    check_plan(plan, card_bytes=card_bytes)


def explain_memory(config: Config, policy: str, verify_rm: str, num_processes: int, gpu_gib: float) -> str:
    """The plan for models that are folders, hub ids or addresses in an object store, line by line.

    Raises:
        ConfigError: it does not fit on such GPUs, or an architecture whose sizes are not known.
        ModelError: no config.json.
        StorageError: a stored model cannot be read.
    """
    card_bytes = round(gpu_gib * GIB)
    plan = make_plan(
        config,
        policy=_read_model_config(config, policy),
        verify_rm=_read_model_config(config, verify_rm),
        num_processes=num_processes,
        card_bytes=card_bytes,
    )
    check_plan(plan, card_bytes=card_bytes)
    return f"most in the phase '{plan.phase}':\n{describe_plan(plan)}\n"


def explain_seconds(config: Config, policy: str, verify_rm: str, card: Card, *, prompt_tokens: int) -> str:
    """The budget of a step whose completions all reach their limit, phase by phase.

    Raises:
        ConfigError: an architecture whose sizes are not known.
        ModelError: no config.json.
        StorageError: a stored model cannot be read.
    """
    own, judging = (read_shape(_read_model_config(config, name), place=name) for name in (policy, verify_rm))
    work = make_work(config, prompt_tokens=prompt_tokens)
    return (
        f"{work.num_problems} x {work.group_size} completions of {work.completion_tokens} tokens, one GPU of "
        f"{card.flops / 1e12:g} TFLOP/s and {card.bandwidth / 1e12:g} TB/s; estimated, not measured:\n"
        f"{describe_budget(make_budget(own, judging, work), card)}\n"
    )


def make_work(config: Config, *, prompt_tokens: int) -> Work:
    """The most tokens that a step can have."""
    cooper, engine = config.cooper, config.engine
    is_vllm = engine.kind == "vllm"
    num_drawn = engine.max_num_seqs or VLLM_SEQUENCES if is_vllm else cooper.generation.batch_size
    decoys = config.verify_rm.num_decoys
    return Work(
        num_problems=cooper.problems_per_step,
        group_size=cooper.group_size,
        prompt_tokens=prompt_tokens,
        completion_tokens=cooper.generation.max_new_tokens,
        num_drawn=num_drawn,
        num_pairs=cooper.problems_per_step * cooper.pairs.per_problem if cooper.trains_verify_rm else 0,
        is_checkpointed=cooper.gradient_checkpointing,
        num_rivals=decoys + MORE_RIVALS if decoys else 0,
    )


def _read_model_config(config: Config, name: str) -> dict[str, Any]:
    if is_stored(name):
        with find_model(config.storage, name).without_weights() as folder:
            return _read_model_config(config, str(folder))
    try:
        found = PretrainedConfig.get_config_dict(name)[0]
    except (OSError, ValueError) as error:
        raise explain_unreadable(name, error) from error
    if not found:  # the library's answer for a folder without the file
        raise ModelError(f"{name}: no config.json; give a model's folder, or the id of a model on the hub")
    return found
