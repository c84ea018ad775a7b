"""Opens the engine of a configuration, for the stages that generate."""

from cooper_rl.config.engine import EngineConfig
from cooper_rl.engines.base import Engine
from cooper_rl.engines.hf import HFEngine
from cooper_rl.models.policy import Policy


def open_engine(policy: Policy, config: EngineConfig) -> Engine:
    """An engine with the policy's weights; the caller closes it.

    Raises:
        ConfigError: vLLM is asked for and is not installed, or memory or lengths do not fit.
        ModelError: vLLM cannot run this model.
        CooperError: the process that the engine was given to has ended.
    """
    if config.process == "own":
        from cooper_rl.engines.separate import SeparateEngine  # which opens one itself

        return SeparateEngine(policy, config)
    if config.kind == "vllm":
        from cooper_rl.engines.vllm import VLLMEngine

        return VLLMEngine(policy.model, end_ids=policy.end_ids, config=config)
    return HFEngine(policy.model, end_ids=policy.end_ids, pad_id=policy.pad_id, compute=policy.compute)
