"""The three losses (rows 9-12), as sums over a part of a batch divided by the size of the whole batch.

Dividing by the whole batch's count, not by the part's, makes gradients independent of how a batch is
split into micro-batches: accumulate the parts with `backward()` and the sum is the batch's loss.

Legend: B completions of at most C tokens, P pairs, N examples.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F


class PolicyLoss(NamedTuple):
    """Share of the batch's policy loss; the sums are for logging and carry no gradient."""

    loss: torch.Tensor
    """() differentiable."""
    kl_sum: torch.Tensor
    """() sum over tokens of the k3 estimate of KL(policy || reference), in nats."""
    clipped_sum: torch.Tensor
    """() number of tokens on which the clip removes the gradient."""


def grpo_loss(
    logprobs: torch.Tensor,
    old_logprobs: torch.Tensor,
    ref_logprobs: torch.Tensor | None,
    advantages: torch.Tensor,
    mask: torch.Tensor,
    *,
    clip_epsilon: float,
    kl_coefficient: float,
    num_batch_tokens: int,
    importance_weights: torch.Tensor | None = None,
) -> PolicyLoss:
    """Clipped policy gradient with a KL loss term, averaged over all completion tokens of the batch.

    Args:
        logprobs: (B, C) of the policy.
        old_logprobs: (B, C) of the policy that sampled, no gradient.
        ref_logprobs: (B, C) of the frozen reference policy, no gradient; None when kl_coefficient is 0.
        advantages: (B,), the same for every token of a completion.
        mask: (B, C) bool, True = a completion token, counts.
        clip_epsilon: the ratio is clipped to [1 - eps, 1 + eps].
        kl_coefficient: weight beta of the KL term.
        num_batch_tokens: completion tokens of the whole batch.
        importance_weights: (B, C) factor of the policy gradient (not of the KL term), no gradient; None: 1.

    Source: arXiv 2402.03300 eq. 3 with the token mean of arXiv 2503.14476; KL as a loss, k3 estimator.
    """
    ratio = torch.exp(logprobs - old_logprobs)
    advantage = advantages[:, None]
    unclipped = ratio * advantage
    clipped = ratio.clamp(1 - clip_epsilon, 1 + clip_epsilon) * advantage
    token_loss = -torch.minimum(unclipped, clipped)
    if importance_weights is not None:
        token_loss = token_loss * importance_weights
    kl = torch.zeros_like(logprobs) if ref_logprobs is None else k3_kl(logprobs, ref_logprobs)
    token_loss = token_loss + kl_coefficient * kl
    with torch.no_grad():
        kl_sum = kl[mask].sum()
        clipped_sum = (clipped < unclipped)[mask].sum()
    return PolicyLoss(token_loss[mask].sum() / num_batch_tokens, kl_sum, clipped_sum)


def k3_kl(logprobs: torch.Tensor, ref_logprobs: torch.Tensor) -> torch.Tensor:
    """exp(d) - d - 1 with d = ref - policy: an unbiased, non-negative estimate of KL(policy || reference).

    Elementwise over any shape; valid for tokens drawn from the policy.
    Source: http://joschu.net/blog/kl-approx.html.
    """
    difference = ref_logprobs - logprobs
    return torch.exp(difference) - difference - 1


def pair_loss(positive: torch.Tensor, negative: torch.Tensor, *, num_batch_pairs: int) -> torch.Tensor:
    """Bradley-Terry loss on raw logits: sum of -log sigmoid(positive - negative) / num_batch_pairs.

    Args:
        positive: (P,) logits of the positives of this part.
        negative: (P,) logits of the negatives, in the same order.
        num_batch_pairs: valid pairs of the whole step.

    Source: arXiv 2508.05613 section 3, reward update.
    """
    return -F.logsigmoid(positive - negative).sum() / num_batch_pairs


def label_loss(
    logits: torch.Tensor,
    labels: torch.Tensor,
    *,
    num_batch_examples: int,
    weights: torch.Tensor | None = None,
) -> torch.Tensor:
    """Binary cross-entropy on raw logits: sum over this part / examples of the whole batch.

    Args:
        logits: (N,).
        labels: (N,) of 0.0 and 1.0.
        num_batch_examples: examples of the whole batch.
        weights: (N,) each example's weight; None: all 1.

    Source: arXiv 2508.05613, VerifyRM training.
    """
    losses = F.binary_cross_entropy_with_logits(logits, labels, weight=weights, reduction="sum")
    return losses / num_batch_examples
