"""The memory that co-training needs on one GPU, computed before it begins (rows 6 to 12).

Weights, gradients and optimiser state are counted exactly from the models' configurations; activations are an
estimate for the packed walk with fused attention. `RESERVED` stands for fragmentation and the CUDA context.

Legend: N weights of a model, n processes.
"""

from collections.abc import Sequence
from typing import NamedTuple

from cooper_rl.errors import ConfigError
from cooper_rl.models.completions import MAX_LOGITS
from cooper_rl.models.packed.packing import MAX_ROWS
from cooper_rl.models.shape import Shape, count_adapters, count_unrounded, count_weights

GIB = 2**30
RESERVED = 2 * GIB
"""CUDA context, NCCL, kernels' work space, fragmentation."""
LOGITS = 3 * 4 * MAX_LOGITS
"""A chunk of logits, their softmax and its gradient in fp32."""
NO_AVERAGE = "set cooper.reward.ema_decay=0"
BUCKET = 500_000_000
"""Gradients that DeepSpeed sends at a time, in values (its default)."""


class Part(NamedTuple):
    """One thing that takes memory."""

    name: str
    bytes: int
    remedy: str
    """Settings that reduce it; empty: none."""


class Plan(NamedTuple):
    """The parts that are there together, in the phase that needs most."""

    phase: str
    parts: list[Part]

    @property
    def bytes(self) -> int:
        return sum(part.bytes for part in self.parts)


class Use(NamedTuple):
    """The settings of training that bear on memory."""

    num_processes: int
    zero_stage: int
    is_bfloat16: bool
    """The type of forward passes; with DeepSpeed also of the weights that they use."""
    is_offloaded: bool
    is_checkpointed: bool
    """Activations are recomputed."""
    adapter_rank: int | None
    """LoRA's rank; None: the policy's weights are trained, and the KL term needs a second copy of them."""
    trains_verify_rm: bool
    max_tokens: int
    """Tokens of one forward and backward pass."""
    engine_bytes: int
    """Memory of the engine beside the policy's own weights: vLLM's share, or a KV cache."""
    engine_remedy: str
    engine_weight_bytes: int
    """For each weight of the policy that the engine keeps once more; 0: none, or it counts them itself."""
    engine_sleeps: bool
    """It hands its memory back while models are trained."""
    engine_wakes_early: bool
    """Its weights, in bf16, are there again when VerifyRM is updated."""
    has_gate: bool
    """VerifyRM is copied before its update."""
    has_average: bool
    """The reward comes from an average of VerifyRMs."""


def cache_bytes(shape: Shape, *, num_tokens: int) -> int:
    """Keys and values of so many tokens in bf16."""
    # Two of them, in two bytes each.
    return 2 * 2 * shape.num_layers * shape.key_value_size * num_tokens


def activation_bytes(shape: Shape, *, max_tokens: int, is_checkpointed: bool) -> int:
    """Memory that a forward pass keeps for its backward pass, without the logits.

    Per token and layer: both norms' inputs in fp32 and outputs in bf16, the attention's output in bf16, and
    four values of the MLP in bf16; `MAX_ROWS` times query, key, value and mix of the attention's own rows in
    bf16; with checkpointing one layer of that and every layer's input in fp32.
    """
    layer = 2 * (4 + 2) * shape.hidden_size + 2 * shape.attention_size
    # Rows repeat a shared prompt for every completion that attends to it; the packer bounds that
    # repetition.
    layer += MAX_ROWS * 2 * (2 * shape.attention_size + 2 * shape.key_value_size)
    layer += 2 * 4 * shape.intermediate_size
    if is_checkpointed:
        return max_tokens * (layer + 4 * shape.hidden_size * shape.num_layers)
    return max_tokens * layer * shape.num_layers


def plan_memory(policy: Shape, verify_rm: Shape, use: Use) -> Plan:
    """The memory of the largest phase on one GPU.

    Without DeepSpeed a trained model has 4N bytes of weights, 4N of gradients while it is updated, 8N of
    optimiser state. With ZeRO it has 2N of bf16 weights (or 4N), 4N / n of master weights and 8N / n of
    state (in CPU memory when offloaded), and 4N of gradients (divided by n from stage 2) with their bucket.
    Adapters are fp32, and so are the frozen weights beside them, which nothing divides. Where weights are
    fp32 and passes bf16, the pass that is differentiated keeps 2N of rounded weights.
    """
    num_policy = count_weights(policy)
    num_verify_rm = count_weights(verify_rm, is_classifier=True)
    # Without DeepSpeed the weights are fp32 and autocast rounds them for each pass; with it the model
    # itself is bf16.
    size = 2 if use.zero_stage and use.is_bfloat16 else 4
    resting: list[Part] = []
    if use.adapter_rank is not None:
        num_adapters = count_adapters(policy, rank=use.adapter_rank)
        trained = [_Trained("policy", policy, num_adapters, 4, num_policy)]
        resting.append(Part("policy: frozen weights", 4 * num_policy, ""))
    else:
        trained = [_Trained("policy", policy, num_policy, size, num_policy)]
        resting.append(
            # With adapters the reference is the policy with its adapters switched off, and costs nothing.
            Part(
                "reference policy",
                _reference_bytes(policy, use),
                "set cooper.policy.lora.rank=16, which needs none",
            )
        )
    if use.trains_verify_rm:
        trained.append(_Trained("VerifyRM", verify_rm, num_verify_rm, size, num_verify_rm))
    for each in trained:
        resting += _model_parts(each, use)
    if not use.trains_verify_rm:
        # A VerifyRM that only scores stays in fp32 and whole: nothing steps it, so that DeepSpeed never
        # sees it.
        resting.append(Part("VerifyRM: weights", 4 * num_verify_rm, ""))
    if use.has_average:
        resting.append(Part("VerifyRM: trained beside its average", 4 * num_verify_rm, NO_AVERAGE))
    if use.engine_weight_bytes:
        resting.append(Part("engine: weights", use.engine_weight_bytes * num_policy, "set engine.kind=vllm"))
    # The engine counts once per phase: while it draws, nothing is differentiated, and while models are
    # updated it may sleep.
    engine = Part("engine", use.engine_bytes, use.engine_remedy)
    phases = [Plan("rollouts", [*resting, *_whole_parts(trained[0], use), engine])]
    for each in trained:
        parts = [*resting, *_update_parts(each, use)]
        if not use.engine_sleeps:
            parts.append(engine)
        if each.name == "VerifyRM":
            parts += _guard_parts(num_verify_rm, use)
            # The policy's update ends by handing weights to the engine, which then stays awake through
            # VerifyRM's update without its cache.
            if use.engine_sleeps and use.engine_wakes_early:
                parts.append(Part("engine: weights, awake", 2 * num_policy, ""))
        phases.append(Plan(f"update of the {each.name}", parts))
    # Memory that torch has once taken it keeps: the largest phase decides, not the sum.
    return max(phases, key=lambda plan: plan.bytes)


def check_plan(plan: Plan, *, card_bytes: int) -> None:
    """Refuse what does not fit.

    Raises:
        ConfigError: with what is needed, what there is, and what to lower, the largest first.
    """
    needed = plan.bytes + RESERVED
    if needed <= card_bytes:
        return
    parts = sorted((part for part in plan.parts if part.remedy), key=lambda part: -part.bytes)
    remedies = list(dict.fromkeys(part.remedy for part in parts))
    raise ConfigError(
        f"the phase '{plan.phase}' needs about {needed / GIB:.1f} GiB of a GPU that has "
        f"{card_bytes / GIB:.1f} GiB: {'; or '.join(remedies)}\n{describe_plan(plan)}"
    )


def describe_plan(plan: Plan) -> str:
    """A line for every part, the largest first."""
    parts: Sequence[Part] = sorted(
        [*plan.parts, Part("reserved", RESERVED, "")], key=lambda part: -part.bytes
    )
    width = max(len(part.name) for part in parts)
    lines = [f"  {part.name:<{width}}  {part.bytes / GIB:7.2f} GiB" for part in parts]
    return "\n".join([*lines, f"  {'together':<{width}}  {(plan.bytes + RESERVED) / GIB:7.2f} GiB"])


class _Trained(NamedTuple):
    """The stepped part of a model."""

    name: str
    shape: Shape
    size: int
    """Number of weights that are stepped."""
    weight_bytes: int
    """Size of each in the model itself."""
    num_used: int
    """Weights that a pass goes through, frozen ones too."""


def _reference_bytes(policy: Shape, use: Use) -> int:
    """A frozen copy. With ZeRO all its weights are rounded, as the policy's are; else its linear layers."""
    if not use.is_bfloat16:
        return 4 * count_weights(policy)
    unrounded = 0 if use.zero_stage else count_unrounded(policy)
    return 2 * count_weights(policy) + 2 * unrounded


def _model_parts(trained: _Trained, use: Use) -> list[Part]:
    """Parts of a trained model that are there while it is idle too."""
    name, count = trained.name, trained.size
    if use.zero_stage == 0:
        remedy = "set distributed.zero_stage=1 and distributed.offload_optimizer=true"
        return [
            Part(f"{name}: weights, fp32", 4 * count, remedy),
            Part(f"{name}: optimiser state", 8 * count, remedy),
        ]
    weights = trained.weight_bytes * count // (use.num_processes if use.zero_stage == 3 else 1)
    parts = [Part(f"{name}: weights", weights, "" if use.is_bfloat16 else "set cooper.precision=bfloat16")]
    if not use.is_offloaded:
        remedy = "set distributed.offload_optimizer=true"
        parts.append(Part(f"{name}: master weights and state", 12 * count // use.num_processes, remedy))
    return parts


def _update_parts(trained: _Trained, use: Use) -> list[Part]:
    """Parts that its update adds."""
    name, count = trained.name, trained.size
    divided = use.num_processes if use.zero_stage >= 2 else 1
    gradients = 4 * count // divided
    if use.zero_stage:
        # DeepSpeed copies gradients into one contiguous buffer per send, beside the gradients themselves.
        gradients += trained.weight_bytes * min(BUCKET, count)
    tokens = "lower cooper.max_tokens_per_batch"
    if not use.is_checkpointed:
        tokens += " or set cooper.gradient_checkpointing=true"
    # autocast caches the rounded copy of a weight until its block ends, when the graph needs it for the
    # backward.
    rounded = 2 * trained.num_used if use.is_bfloat16 and trained.weight_bytes == 4 else 0
    activations = activation_bytes(
        trained.shape, max_tokens=use.max_tokens, is_checkpointed=use.is_checkpointed
    )
    return [
        Part(f"{name}: gradients", gradients, ""),
        *_whole_parts(trained, use),
        *([Part(f"{name}: weights in bf16", rounded, "")] if rounded else []),
        Part(f"{name}: activations", activations, tokens),
        *(_head_parts(trained, use) if name == "policy" else []),
    ]


def _head_parts(trained: _Trained, use: Use) -> list[Part]:
    """A chunk of logits, and the sum of the chunks' gradients of the head, beside the weight's own."""
    shape = trained.shape
    is_chunked = use.max_tokens * shape.vocab_size > MAX_LOGITS
    parts = [Part("logits", LOGITS, "")]
    if is_chunked and use.adapter_rank is None:
        parts.append(Part("head: gradient of all chunks, fp32", 4 * shape.vocab_size * shape.hidden_size, ""))
    return parts


def _guard_parts(num_verify_rm: int, use: Use) -> list[Part]:
    """Parts with which an update of VerifyRM can be taken back, and its new average."""
    parts: list[Part] = []
    if use.has_gate and not use.is_offloaded:
        # The gate can take an update back. It needs the weights before it, and with an average those that
        # are stepped as well.
        copied = (8 if use.has_average else 4) * num_verify_rm
        copied //= use.num_processes if use.zero_stage else 1
        parts.append(Part("gate: copy of VerifyRM", copied, "set cooper.gate=null"))
    if use.has_average:
        parts.append(Part("VerifyRM: new average", 4 * num_verify_rm, NO_AVERAGE))
    return parts


def _whole_parts(trained: _Trained, use: Use) -> list[Part]:
    """Parts that gather a model which ZeRO 3 has divided."""
    if use.zero_stage < 3:
        return []
    # Only what other ranks hold comes in addition.
    size = trained.weight_bytes * (trained.size - trained.size // use.num_processes)
    return [Part(f"{trained.name}: gathered weights", size, "")]
