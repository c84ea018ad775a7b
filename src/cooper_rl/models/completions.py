"""Log-probabilities of completions under a policy, every prompt computed once for its group (row 9).

A step's completions share their prompts, which is most of what a padded batch would compute. Logits are held
at completion tokens only, and in chunks. A model that the packed walk does not know
(`models/packed/forward.py`) takes the library's walk over padded batches, to the same numbers.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from cooper_rl.errors import ModelError
from cooper_rl.models.lora import without_adapters
from cooper_rl.models.packed.batching import PaddedBatch, pad_right, split_by_tokens
from cooper_rl.models.packed.forward import can_pack, limit_tokens, packed_states
from cooper_rl.models.packed.fused import is_fused, target_logprobs
from cooper_rl.models.packed.packing import PackedBatch, pack, split_packed
from cooper_rl.models.packed.varlen import can_vary
from cooper_rl.models.policy import Policy, check_lengths
from cooper_rl.models.precision import is_bfloat16

MAX_LOGITS = 2**26
"""Logits held at a time (256 MiB in fp32); more are computed in chunks and recomputed in the backward."""
CPU_LOGITS = 2**20
"""Logits that a CPU turns into log-probabilities at a time: in fp32 they stay in its caches (4 MiB)."""


@dataclass(frozen=True)
class CompletionBatch:
    """B prompts with a completion each, of at most C tokens; K completion tokens in all."""

    tokens: PackedBatch | PaddedBatch
    """Every prompt with its completion but for the last token, after which nothing is asked."""
    predictors: torch.Tensor
    """(K,) int64: place in the flattened tokens of the one before each completion token."""
    targets: torch.Tensor
    """(K,) int64: the completion tokens, one completion after the other."""
    mask: torch.Tensor
    """(B, C) bool, True = a completion token, counts."""


def check_head(policy: Policy) -> None:
    """Refuse a model whose logits are more than what its head makes of its last hidden states.

    Below they are that alone: others would be trained on than completions are drawn from.

    Raises:
        ModelError: its architecture scales or caps them.
    """
    # Any text does: a scale or a cap acts on all logits, and a cap such as Gemma's shows at ordinary sizes
    # too.
    ids = torch.tensor([policy.encode_prompt("What is 1 + 1?", None)], device=policy.device)
    if not has_plain_head(policy.model, ids):
        raise ModelError(
            f"the policy: {type(policy.model).__name__} scales or caps the logits of its head, which "
            "training does not: take a policy of another architecture, such as Qwen2, Qwen3 or Llama"
        )


@torch.no_grad()
def has_plain_head(model: Any, ids: torch.Tensor) -> bool:
    """True if the head alone turns the last hidden states of these ids (1, T) into the logits (1, T, V)."""
    hidden = model.get_decoder()(input_ids=ids, use_cache=False).last_hidden_state
    logits = model(input_ids=ids, use_cache=False).logits
    return torch.allclose(model.get_output_embeddings()(hidden), logits, 1e-4, 1e-5, equal_nan=True)


def split_completions(
    policy: Policy, prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]], max_tokens: int
) -> list[list[int]]:
    """Indices of completions in batches under a token budget; every index appears exactly once.

    Raises:
        ModelError: one is longer than the policy has positions for; see `check_lengths`.
    """
    rows = [[*prompt, *completion] for prompt, completion in zip(prompts, completions, strict=True)]
    # vLLM draws completions that this model's own walk would read in another way.
    longest = max(map(len, rows), default=0) - 1
    check_lengths(policy.model, longest, remedy="lower cooper.generation.max_new_tokens")
    if not can_pack(policy.model):
        return split_by_tokens([len(row) for row in rows], max_tokens)
    return split_packed([[row] for row in rows], limit_tokens(policy.model, policy.compute, max_tokens))


def batch_completions(
    policy: Policy, prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]]
) -> CompletionBatch:
    """One batch, for this policy and any other of its architecture; none of the sequences may be empty."""
    device = policy.device
    # Nothing is predicted after the last token, so its own pass, one in every completion, would be wasted.
    rows = [[*prompt, *completion[:-1]] for prompt, completion in zip(prompts, completions, strict=True)]
    if can_pack(policy.model):
        tokens = pack(rows, device=device, has_groups=not can_vary(policy.model, policy.compute))
        places = tokens.places
    else:
        tokens = pad_right(rows, pad_id=policy.pad_id, device=device)
        width = tokens.input_ids.shape[1]
        places = [np.arange(start * width, (start + 1) * width) for start in range(len(rows))]
    predictors = [
        # The token before a completion's first one is the prompt's last: logits are read one place early.
        own[len(prompt) - 1 : len(row)]
        for prompt, row, own in zip(prompts, rows, places, strict=True)
    ]
    lengths = torch.tensor([len(completion) for completion in completions])
    return CompletionBatch(
        tokens=tokens,
        predictors=torch.as_tensor(np.concatenate(predictors)).to(device),
        targets=torch.tensor([token for row in completions for token in row], device=device),
        mask=(torch.arange(int(lengths.max()))[None, :] < lengths[:, None]).to(device),
    )


def completion_logprobs(policy: Policy, batch: CompletionBatch, *, temperature: float) -> torch.Tensor:
    """Log-probability of every completion token at the temperature that the completions were drawn with.

    Differentiable where the policy's weights are; (B, C) in fp32, 0 where the mask is False.
    """
    is_rounded = is_bfloat16(policy.model, policy.compute)
    adapters = without_adapters(policy.model) if policy.is_bare else nullcontext()
    with adapters, torch.autocast(policy.device.type, torch.bfloat16, enabled=is_rounded):
        if isinstance(batch.tokens, PackedBatch):
            hidden = packed_states(policy.model, batch.tokens)
        else:
            hidden = policy.model.get_decoder()(
                input_ids=batch.tokens.input_ids, attention_mask=batch.tokens.attention_mask, use_cache=False
            ).last_hidden_state.flatten(0, 1)
        # Hidden states first, logits of the needed places alone: with a vocabulary of 150,000 the logits of
        # a prompt would be most of the memory, and nobody asks for them.
        head = policy.model.get_output_embeddings()
        flat = chunked_logprobs(head, hidden.index_select(0, batch.predictors), batch.targets, temperature)
    # `masked_scatter` fills row by row, which is the order of the targets: one completion after the other.
    return torch.zeros(batch.mask.shape, device=flat.device).masked_scatter(batch.mask, flat)


def chunked_logprobs(
    head: Any, hidden: torch.Tensor, targets: torch.Tensor, temperature: float
) -> torch.Tensor:
    """(K,) log-probabilities of the targets (K,) after the hidden states (K, H), through a linear head."""
    size = max(1, MAX_LOGITS // head.weight.shape[0])
    if len(targets) <= size:
        return _logprobs(head(hidden), targets, temperature)
    return _ChunkedLogprobs.apply(hidden, head.weight, head.bias, targets, temperature, size)


class _ChunkedLogprobs(torch.autograd.Function):
    """`size` rows of logits at a time, which are dropped and made again in the backward.

    One more product with the head in place of gigabytes. The head's gradient is added up in fp32 and rounded
    once: rounded to bf16 after every chunk, its error grows with their number, which biases training towards
    lower entropy (TRL 1.16, trl/kernels/chunked_logprob.py).
    """

    @staticmethod
    def forward(
        ctx: Any, hidden: Any, weight: Any, bias: Any, targets: Any, temperature: float, size: int
    ) -> Any:
        kind = hidden.device.type
        if torch.is_autocast_enabled(kind):
            # Here once: autocast would round the whole head again for every chunk.
            dtype = torch.get_autocast_dtype(kind)
            hidden, weight, bias = (
                each if each is None else each.to(dtype) for each in (hidden, weight, bias)
            )
        # As rounded: the backward runs outside of autocast and must multiply what the forward multiplied.
        ctx.save_for_backward(hidden, weight, bias, targets)
        ctx.temperature, ctx.size = temperature, size
        chunks = zip(hidden.split(size), targets.split(size), strict=True)
        return torch.cat([_logprobs(F.linear(part, weight, bias), own, temperature) for part, own in chunks])

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        hidden, weight, bias, targets = ctx.saved_tensors
        to_hidden = torch.empty_like(hidden)
        needs_weight, needs_bias = ctx.needs_input_grad[1:3]
        to_weight = torch.zeros_like(weight, dtype=torch.float32) if needs_weight else None
        to_bias = torch.zeros_like(bias, dtype=torch.float32) if needs_bias else None
        whole = (to_hidden, hidden, targets, gradients[0])
        chunks = zip(*(each.split(ctx.size) for each in whole), strict=True)
        # The last chunk first, as autograd adds up: fp32 gradients are those of an ordinary backward.
        for own, part, tokens, gradient in reversed(list(chunks)):
            logits = F.linear(part, weight, bias)
            # Inside a backward gradients are off; a chunk's small graph is built and used up at once.
            with torch.enable_grad():
                values = _logprobs(logits.requires_grad_(), tokens, ctx.temperature)
            (to_logits,) = torch.autograd.grad(values, logits, gradient)
            own.copy_(to_logits @ weight)
            if to_weight is not None:
                _add_product(to_weight, to_logits.t(), part)
            if to_bias is not None:
                to_bias += to_logits.sum(dim=0)
        # Autograd casts each to the type of its input, which autocast may have rounded in the forward.
        return to_hidden, to_weight, to_bias, None, None, None


def _add_product(total: torch.Tensor, left: torch.Tensor, right: torch.Tensor) -> None:
    """Add a product to a total in fp32."""
    if total.device.type == "cuda" and right.dtype == torch.bfloat16:
        # cuBLAS adds its fp32 sums up there itself, without a product of the head's size beside the total.
        torch.addmm(total, left, right, out_dtype=torch.float32, out=total)
    else:
        total += left @ right


def _logprobs(logits: torch.Tensor, targets: torch.Tensor, temperature: float) -> torch.Tensor:
    if is_fused(logits):
        return target_logprobs(logits, targets, temperature)
    # Pieces that stay in the caches help a CPU; a GPU would only launch more kernels.
    if logits.device.type != "cpu" or logits.numel() <= CPU_LOGITS:
        return _target_logprobs(logits, targets, temperature)
    return _TargetLogprobs.apply(logits, targets, temperature)


def _target_logprobs(logits: torch.Tensor, targets: torch.Tensor, temperature: float) -> torch.Tensor:
    # bf16 has two to three digits: the ratio of two log-probabilities would be mostly rounding.
    logits = logits.float()
    if temperature != 1:
        logits = logits / temperature
    return -F.cross_entropy(logits, targets, reduction="none")


class _TargetLogprobs(torch.autograd.Function):
    """The same, some rows at a time; for the backward the logits are kept as they are, not in fp32."""

    @staticmethod
    def forward(ctx: Any, logits: Any, targets: Any, temperature: float) -> Any:
        ctx.save_for_backward(logits, targets)
        ctx.temperature, ctx.size = temperature, max(1, CPU_LOGITS // logits.shape[1])
        chunks = zip(logits.split(ctx.size), targets.split(ctx.size), strict=True)
        return torch.cat([_target_logprobs(*chunk, temperature) for chunk in chunks])

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        logits, targets = ctx.saved_tensors
        to_logits = torch.empty_like(logits)
        whole = (to_logits, logits, targets, gradients[0])
        for own, part, tokens, gradient in zip(*(each.split(ctx.size) for each in whole), strict=True):
            # Inside a backward gradients are off; the pieces' small graphs are built and used up one at a
            # time.
            with torch.enable_grad():
                part = part.detach().requires_grad_()
                logprobs = _target_logprobs(part, tokens, ctx.temperature)
            own.copy_(*torch.autograd.grad(logprobs, part, gradient))
        return to_logits, None, None
