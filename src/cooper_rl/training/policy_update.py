"""Phase 4 of a step: one or more clipped policy-gradient updates (rows 9 and 10)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import compress, pairwise

import torch

from cooper_rl.config.cooper import CooperConfig
from cooper_rl.distributed.ranks import Ranks
from cooper_rl.distributed.trainable import Trainable, as_trainable
from cooper_rl.engines.base import Generation
from cooper_rl.method.losses import BatchSize, Clip, policy_loss
from cooper_rl.method.mismatch import Mismatch, add_up, importance_weights
from cooper_rl.models.completions import (
    CompletionBatch,
    batch_completions,
    completion_logprobs,
    split_completions,
)
from cooper_rl.models.policy import Policy
from cooper_rl.schema.step_metrics import PolicyMetrics
from cooper_rl.training.optimizer import apply_gradients, recomputing
from cooper_rl.training.rollout import RolloutGroup


@dataclass(frozen=True)
class PolicyBatch:
    """Row 9: B completions of one micro-batch, of at most C tokens."""

    completions: CompletionBatch
    old_logprobs: torch.Tensor | None
    """(B, C); None when the policy has not changed since the rollouts."""
    engine_logprobs: torch.Tensor
    """(B, C) what the engine said when it drew the tokens."""
    ref_logprobs: torch.Tensor | None
    """(B, C); None when there is no KL term."""
    advantages: torch.Tensor
    """(B,)."""
    counts: bool
    """False for filler batches: run only so that every rank makes the same number of collective calls;
    excluded from loss and metrics."""


def update_policy(
    policy: Policy,
    reference: Policy,
    optimizer: Trainable | torch.optim.Optimizer,
    groups: Sequence[RolloutGroup],
    advantages: torch.Tensor,
    *,
    config: CooperConfig,
) -> PolicyMetrics:
    """Update the policy on the rollouts of one step, `policy_updates_per_step` times on equal shares.

    With one update the sampling policy is the policy itself: its log-probabilities are not computed again.
    Advantages that are all zero say nothing: then there is no update, which the KL term and the optimiser's
    momentum would otherwise make of nothing.

    Args:
        policy: trained in place.
        reference: frozen, for the KL term.
        optimizer: over the policy's weights; a plain one trains in this process.
        groups: B completions in groups.
        advantages: (B,) with groups contiguous.
        config: section `cooper`.

    Raises:
        TrainingError: the loss is not finite; the weights are left as before this update.
    """
    groups, advantages = _counted(groups, advantages, config)
    # Every rank holds all advantages: all of them return here, or none does.
    if not advantages.any():  # nothing is computed in vain
        return PolicyMetrics(loss=0.0, clip_fraction=0.0, grad_norm=0.0)
    trained = as_trainable(policy.model, optimizer)
    ranks = trained.ranks
    with trained.gather():
        shares = split_shares(policy, reference, groups, advantages, config, ranks)
    num_tokens = 0
    loss_sum = kl_sum = clipped_sum = 0.0
    grad_norms: list[float] = []
    mismatch = Mismatch()
    for share in shares:
        # The whole update's counts, before its first batch: each part is divided by them, and gradients
        # just add up.
        size = count_share(share, config, ranks)
        # Whether there is an update is decided together: `step` is collective.
        if not ranks.any(any(bool(batch.advantages.any()) for batch in share)):
            continue
        with trained.gather(), recomputing(policy.model, is_on=config.gradient_checkpointing):
            sums = ranks.sums(*backward_share(policy, trained, share, size, mismatch, config))
        # Outside of the gather block: ZeRO 3 steps divided weights, and would write over gathered ones.
        grad_norms.append(apply_gradients(trained, config.max_grad_norm, name="policy"))
        loss_sum += sums[0]
        kl_sum += sums[1]
        clipped_sum += sums[2]
        num_tokens += size.num_tokens
    # Collective, and reached by every rank however many of its updates were skipped.
    mismatch = add_up(ranks.gather([mismatch], ranks.size))
    return PolicyMetrics(
        loss=loss_sum / max(num_tokens, 1),
        # 0 would say that the policy is where it began.
        kl=kl_sum / num_tokens if num_tokens and config.policy.kl_coefficient else None,
        clip_fraction=clipped_sum / max(num_tokens, 1),
        grad_norm=sum(grad_norms) / max(len(grad_norms), 1),
        mismatch=mismatch.mean_difference,
        max_mismatch=mismatch.max_difference if mismatch.num_tokens else None,
        importance_ratio=mismatch.mean_ratio,
    )


def count_share(share: Sequence[PolicyBatch], config: CooperConfig, ranks: Ranks) -> BatchSize:
    """The tokens and completions of one update, over all ranks; collective."""
    counted = [batch.completions for batch in share if batch.counts]
    own_tokens, own_completions = (
        sum(len(batch.targets) for batch in counted),
        sum(len(b.mask) for b in counted),
    )
    num_tokens, num_completions = ranks.sums(own_tokens, own_completions)
    return BatchSize(int(num_tokens), int(num_completions), config.generation.max_new_tokens)


def backward_share(
    policy: Policy,
    trained: Trainable,
    share: Sequence[PolicyBatch],
    size: BatchSize,
    mismatch: Mismatch,
    config: CooperConfig,
) -> tuple[float, float, float]:
    """This rank's part of sums over an update's tokens: of the loss, of the KL estimate, of the clipped."""
    loss_sum = kl_sum = clipped_sum = 0.0
    settings = config.policy
    high = settings.clip_epsilon if settings.clip_epsilon_high is None else settings.clip_epsilon_high
    for batch in share:
        logprobs = batch_logprobs(policy, batch.completions, config)
        # With one update a step the policy that drew is this one: the ratio is exactly 1 and carries the
        # gradient.
        old_logprobs = logprobs.detach() if batch.old_logprobs is None else batch.old_logprobs
        part = policy_loss(
            logprobs,
            old_logprobs,
            batch.ref_logprobs,
            batch.advantages,
            batch.completions.mask,
            clip=Clip(settings.clip_epsilon, high),
            kl_coefficient=settings.kl_coefficient,
            size=size,
            loss=settings.loss,
            aggregation=settings.loss_aggregation,
            importance_weights=None
            if settings.max_importance_weight is None
            else importance_weights(
                old_logprobs, batch.engine_logprobs, max_weight=settings.max_importance_weight
            ),
        )
        # A filler runs the same backward, whose collective calls the other ranks wait for, with a gradient
        # of 0.
        trained.backward(part.loss * batch.counts)
        if batch.counts:
            # .item() waits for the GPU. After backward it waits for what must be done anyway.
            # The loss is a mean already; its weight in the step's mean is the update's tokens.
            loss_sum += part.loss.item() * size.num_tokens
            kl_sum += part.kl_sum.item()
            clipped_sum += part.clipped_sum.item()
            mismatch.add(old_logprobs, batch.engine_logprobs, batch.completions.mask)
    return loss_sum, kl_sum, clipped_sum


def _counted(
    groups: Sequence[RolloutGroup], advantages: torch.Tensor, config: CooperConfig
) -> tuple[Sequence[RolloutGroup], torch.Tensor]:
    """Groups and advantages, without the groups that the configuration leaves out."""
    if not config.advantages.drop_equal_groups:
        return groups, advantages
    by_group = advantages.view(len(groups), -1)
    kept = [place for place, row in enumerate(by_group) if row.any()]
    return [groups[place] for place in kept], by_group[kept].flatten()


def split_shares(
    policy: Policy,
    reference: Policy,
    groups: Sequence[RolloutGroup],
    advantages: torch.Tensor,
    config: CooperConfig,
    ranks: Ranks,
) -> list[list[PolicyBatch]]:
    """The micro-batches of every update, with everything that must be computed before the first one."""
    num_updates = config.policy.updates_per_step
    group_size = len(groups[0].generations)
    bounds = [len(groups) * place // num_updates for place in range(num_updates + 1)]
    return [
        list(
            _micro_batches(
                policy,
                reference,
                groups[start:end],
                advantages[start * group_size : end * group_size],
                config,
                ranks,
            )
        )
        for start, end in pairwise(bounds)
    ]


def _micro_batches(
    policy: Policy,
    reference: Policy,
    groups: Sequence[RolloutGroup],
    advantages: torch.Tensor,
    config: CooperConfig,
    ranks: Ranks,
) -> Iterator[PolicyBatch]:
    rows = [(group.prompt_ids, generation) for group in groups for generation in group.generations]
    is_kept = [
        # Before the counts are taken, so that a completion that is left out divides nobody's loss.
        not (config.policy.overlong_filtering and generation.finish_reason == "length")
        for _, generation in rows
    ]
    rows, advantages = list(compress(rows, is_kept)), advantages[torch.tensor(is_kept, dtype=torch.bool)]
    prompts = [prompt for prompt, _ in rows]
    completions = [generation.token_ids for _, generation in rows]
    is_on_policy = config.policy.updates_per_step == 1
    has_kl = config.policy.kl_coefficient > 0
    lengths = [len(prompt) + len(own) for prompt, own in zip(prompts, completions, strict=True)]
    max_tokens = ranks.share_tokens(lengths, config.max_tokens_per_batch)
    for part, counts in ranks.deal(split_completions(policy, prompts, completions, max_tokens)):
        batch = batch_completions(policy, [prompts[n] for n in part], [completions[n] for n in part])
        # The block is still open at the `yield`: the caller must take all batches before it needs a gradient.
        with torch.no_grad():
            yield PolicyBatch(
                completions=batch,
                # Computed for all updates before the first one: later they would be those of a policy that
                # has moved on.
                old_logprobs=None if is_on_policy else batch_logprobs(policy, batch, config),
                engine_logprobs=_engine_logprobs([rows[n][1] for n in part], batch.mask),
                ref_logprobs=batch_logprobs(reference, batch, config) if has_kl else None,
                advantages=advantages[part].to(policy.device),
                counts=counts,
            )


def _engine_logprobs(generations: Sequence[Generation], mask: torch.Tensor) -> torch.Tensor:
    """(B, C), 0 beyond the completions' ends."""
    flat = [logprob for generation in generations for logprob in generation.logprobs]
    found = torch.zeros(mask.shape, device=mask.device)
    return found.masked_scatter(mask, torch.tensor(flat, device=mask.device))


def batch_logprobs(policy: Policy, batch: CompletionBatch, config: CooperConfig) -> torch.Tensor:
    """`completion_logprobs` at the temperature of the rollouts."""
    return completion_logprobs(policy, batch, temperature=config.generation.temperature)
