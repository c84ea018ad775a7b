"""Configuration of what generates completions."""

from typing import Literal, Self

from pydantic import Field, model_validator

from cooper_rl.config.section import Section


class EngineConfig(Section):
    """The engine that generates completions in `sample_completions`, `train_cooper` and `evaluate_policy`."""

    kind: Literal["hf", "vllm"] = "hf"
    """`hf`: transformers, on CPU or GPU, with the weights that are trained or a copy of them in bf16. `vllm`:
    vLLM, with a copy that every step renews (extra `vllm`); what follows `devices` is for vLLM."""
    process: Literal["same", "own"] = "same"
    """`own`: the engine has a process of its own with a copy of the weights, so that rollouts of later steps
    (`cooper.max_rollout_staleness`) are drawn while the models are updated. `same`: it draws in the trainer's
    process, in turns with the updates."""
    devices: tuple[int, ...] | None = None
    """GPUs of the engine's own process, by their numbers from 0 among those that the trainer sees; of several
    trainers each takes its share. None: the trainer's GPU."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """The type of vLLM's weights and activations. `auto`: bfloat16 on a GPU, float32 on a CPU."""
    max_model_len: int | None = Field(default=None, ge=2)
    """Most tokens of a prompt with its completion; None: as many as the model was made for. The KV cache must
    hold at least one such sequence."""
    max_num_seqs: int | None = Field(default=None, ge=1)
    """Most completions at a time; None: vLLM's own choice for the device (1,024 on a GPU of
    70 GiB or more that is no A100, else 256)."""
    gpu_memory_utilization: float = Field(default=0.4, gt=0, le=1)
    """Share of the GPU's memory (on a CPU: of the machine's) for vLLM's weights, activations and KV cache. It
    must be free when vLLM starts; the models live in the rest, and train in all of it while vLLM sleeps."""
    kv_cache_gib: float | None = Field(default=None, gt=0)
    """Size of the KV cache in GiB; None: what is left of `gpu_memory_utilization`."""
    tensor_parallel_size: int = Field(default=1, ge=1)
    """GPUs that share the model; more than one are driven by processes of vLLM's own, and every step sends
    them the weights through the memory of this machine."""
    enforce_eager: bool = False
    """Compile nothing and record no CUDA graphs: starts sooner, generates slower, needs no C++ compiler. On a
    GPU Triton wants its C compiler all the same."""
    sleep: bool = True
    """Hand vLLM's GPU memory back while the models are trained. Nothing to hand back on a CPU, or with
    `process` own."""

    @property
    def has_copy(self) -> bool:
        """True if its weights are a copy, whatever its type."""
        return self.process == "own" or self.kind == "vllm"

    @model_validator(mode="after")
    def _devices_are_of_a_process(self) -> Self:
        if self.devices is None:
            return self
        if self.process != "own":
            raise ValueError(
                f"engine.devices={list(self.devices)} are those of the engine's own process: set "
                "engine.process=own, or engine.devices=null"
            )
        if not self.devices or len(set(self.devices)) < len(self.devices) or min(self.devices) < 0:
            raise ValueError(
                f"engine.devices={list(self.devices)}: give numbers of GPUs from 0, each once, or null for "
                "the trainer's GPU"
            )
        return self
