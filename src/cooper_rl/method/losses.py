"""The losses (rows 9-12), as sums over a part of a batch divided by the size of the whole batch.

Dividing by the whole batch's count, not by the part's, makes gradients independent of how a batch is
split into micro-batches: accumulate the parts with `backward()` and the sum is the batch's loss.

Legend: B completions of at most C tokens, P pairs, N examples.
"""

from typing import Literal, NamedTuple, Protocol

import torch
import torch.nn.functional as F

from cooper_rl.config import names
from cooper_rl.registry import Registry


class PolicyLoss(NamedTuple):
    """Share of the batch's policy loss; the sums are for logging and carry no gradient."""

    loss: torch.Tensor
    """() differentiable."""
    kl_sum: torch.Tensor
    """() sum over tokens of the k3 estimate of KL(policy || reference), in nats."""
    clipped_sum: torch.Tensor
    """() number of tokens that the clip acts on, see `TokenLoss.is_clipped`."""


class Clip(NamedTuple):
    """Bounds of the probability ratio: [1 - low, 1 + high]."""

    low: float
    high: float
    """Above `low`, unlikely tokens of good completions can gain probability faster (clip-higher, DAPO)."""


class BatchSize(NamedTuple):
    """Divisors of a batch's loss: counts of the whole batch, whose parts are added up."""

    num_tokens: int
    num_completions: int
    max_new_tokens: int
    """Token limit of one completion."""


class TokenLoss(NamedTuple):
    """The loss of every completion token, before the KL term and before it is averaged."""

    values: torch.Tensor
    """(B, C) differentiable; anything where the mask is False."""
    is_clipped: torch.Tensor
    """(B, C) bool, True = the clip takes the token's gradient away (`grpo`, `gspo`) or bounds its weight
    (`cispo`)."""


class Loss(Protocol):
    """One policy-gradient loss: a pure function over a part of a batch, registered in `LOSSES`."""

    def __call__(
        self,
        logprobs: torch.Tensor,
        old_logprobs: torch.Tensor,
        advantages: torch.Tensor,
        mask: torch.Tensor,
        *,
        clip: Clip,
    ) -> TokenLoss:
        """See `policy_loss` for the arguments."""
        ...


Aggregation = Literal["token_mean", "sequence_mean", "max_length"]


def policy_loss(
    logprobs: torch.Tensor,
    old_logprobs: torch.Tensor,
    ref_logprobs: torch.Tensor | None,
    advantages: torch.Tensor,
    mask: torch.Tensor,
    *,
    clip: Clip,
    kl_coefficient: float,
    size: BatchSize,
    loss: str = "grpo",
    aggregation: Aggregation = "token_mean",
    importance_weights: torch.Tensor | None = None,
) -> PolicyLoss:
    """A registered loss with a KL term, averaged over the batch.

    Args:
        logprobs: (B, C) of the policy.
        old_logprobs: (B, C) of the old policy, which drew the completions; no gradient.
        ref_logprobs: (B, C) of the frozen reference policy, no gradient; None when kl_coefficient is 0.
        advantages: (B,), the same for every token of a completion.
        mask: (B, C) bool, True = a completion token, counts; every row has one at least.
        clip: bounds of the probability ratio.
        kl_coefficient: weight beta of the KL term.
        size: of the whole batch, of which this is a part.
        loss: name in `LOSSES`.
        aggregation: see `aggregate`.
        importance_weights: (B, C) factor of the policy gradient (not of the KL term), no gradient; None: 1.

    Raises:
        ConfigError: no loss of this name is registered.
    """
    found = LOSSES[loss](logprobs, old_logprobs, advantages, mask, clip=clip)
    values = found.values
    if importance_weights is not None:
        # Not on the KL term: its tokens are compared with the reference, whoever drew them.
        values = values * importance_weights
    kl = torch.zeros_like(logprobs) if ref_logprobs is None else k3_kl(logprobs, ref_logprobs)
    # A loss term and not a part of the reward: as a reward it would pass through the advantage and be
    # divided by the group's deviation.
    values = values + kl_coefficient * kl
    with torch.no_grad():
        kl_sum = kl[mask].sum()
        clipped_sum = found.is_clipped[mask].sum()
    return PolicyLoss(aggregate(values, mask, aggregation, size), kl_sum, clipped_sum)


def aggregate(
    values: torch.Tensor, mask: torch.Tensor, aggregation: Aggregation, size: BatchSize
) -> torch.Tensor:
    """This part's share of the batch's mean over (B, C) values at the tokens where the mask is True.

    `token_mean`: every token of the batch weighs the same (DAPO, arXiv 2503.14476 eq. 8).
    `sequence_mean`: every completion weighs the same, so a token of a short one weighs more (GRPO, arXiv
    2402.03300 eq. 3).
    `max_length`: sums over completions, divided by the token limit: no weight depends on a length that the
    policy chose (Dr. GRPO, arXiv 2503.20783).
    """
    match aggregation:
        case "token_mean":
            # Indexing, not multiplying: 0 * inf is NaN, and beyond a completion's end anything may stand.
            return values[mask].sum() / size.num_tokens
        case "sequence_mean":
            # No mean divides by zero: an engine draws one token at least, also where it is the end token.
            means = values.masked_fill(~mask, 0.0).sum(dim=1) / mask.sum(dim=1)
            return means.sum() / size.num_completions
        case "max_length":
            return values[mask].sum() / (size.num_completions * size.max_new_tokens)


def grpo_loss(
    logprobs: torch.Tensor,
    old_logprobs: torch.Tensor,
    advantages: torch.Tensor,
    mask: torch.Tensor,
    *,
    clip: Clip,
) -> TokenLoss:
    """-min(ratio x advantage, clipped ratio x advantage), with the probability ratio of every token.

    Source: arXiv 2402.03300 eq. 3; two bounds: arXiv 2503.14476 section 3.1.
    """
    return _clipped_loss(torch.exp(logprobs - old_logprobs), advantages, clip)


def gspo_loss(
    logprobs: torch.Tensor,
    old_logprobs: torch.Tensor,
    advantages: torch.Tensor,
    mask: torch.Tensor,
    *,
    clip: Clip,
) -> TokenLoss:
    """The same with one ratio for all tokens of a completion: the geometric mean of its tokens' ratios.

    Belongs with `sequence_mean`: each of a completion's tokens holds the loss of the whole completion. The
    ratio stays much nearer to 1 than a token's; the source clips it at 3e-4 and 4e-4.
    Source: arXiv 2507.18071 eqs. 5 and 7.
    """
    # Summed as logarithms: a product of a thousand ratios would leave the range of fp32 long before its
    # root is taken.
    log_ratios = (logprobs - old_logprobs).masked_fill(~mask, 0.0)
    ratio = torch.exp(log_ratios.sum(dim=1, keepdim=True) / mask.sum(dim=1, keepdim=True))
    return _clipped_loss(ratio.expand_as(logprobs), advantages, clip)


def cispo_loss(
    logprobs: torch.Tensor,
    old_logprobs: torch.Tensor,
    advantages: torch.Tensor,
    mask: torch.Tensor,
    *,
    clip: Clip,
) -> TokenLoss:
    """-bounded ratio x advantage x log-probability, the ratio without a gradient: no token loses its own.

    The ratio is bounded from above alone, by 1 + `clip.high`.
    Source: arXiv 2506.13585 eqs. 4 and 5.
    """
    # The ratio is a weight here: with a gradient of its own it would be counted twice.
    ratio = torch.exp(logprobs - old_logprobs).detach()
    bound = 1 + clip.high
    return TokenLoss(-ratio.clamp(max=bound) * advantages[:, None] * logprobs, ratio > bound)


def _clipped_loss(ratio: torch.Tensor, advantages: torch.Tensor, clip: Clip) -> TokenLoss:
    unclipped = ratio * advantages[:, None]
    clipped = ratio.clamp(1 - clip.low, 1 + clip.high) * advantages[:, None]
    # The minimum is pessimistic on both sides: a good token gains nothing above the bound, and a bad one
    # that became likelier is pushed back in full. Equality counts as not clipped, which is where both have
    # the same gradient.
    return TokenLoss(-torch.minimum(unclipped, clipped), clipped < unclipped)


LOSSES: Registry[Loss] = Registry(names.LOSSES)
"""Name in `cooper.policy.loss` -> the loss."""
LOSSES.register("grpo", grpo_loss)
LOSSES.register("gspo", gspo_loss)
LOSSES.register("cispo", cispo_loss)


MAX_KL_DIFFERENCE = 20.0
"""Nats up to which k3 is exponential. A sampled token that the reference policy holds e^20 (5e8) times more
likely is damage or rounding; from 89 nats on, exp is infinite in fp32 and one token would end the run."""


def k3_kl(logprobs: torch.Tensor, ref_logprobs: torch.Tensor) -> torch.Tensor:
    """exp(d) - d - 1 with d = ref - policy, non-negative; elementwise over any shape.

    On tokens drawn from the policy its value is an unbiased estimate of KL(policy || reference). As a loss
    term its gradient is that of KL(reference || policy): 1 - exp(d) for every token. (The gradient of
    KL(policy || reference) would also count how the policy changes which tokens are drawn.)

    Above `MAX_KL_DIFFERENCE` it continues as a straight line with the slope at the bound: value and gradient
    are finite, and a token that the policy gave up is still pulled back, which a plain clamp would stop.

    Source: http://joschu.net/blog/kl-approx.html.
    """
    difference = ref_logprobs - logprobs
    near = difference.clamp(max=MAX_KL_DIFFERENCE)
    # Up to the bound the factor is exactly 1: nothing is rounded otherwise than without it.
    return torch.exp(near) * (difference - near + 1) - difference - 1


def pair_loss(positive: torch.Tensor, negative: torch.Tensor, *, num_batch_pairs: int) -> torch.Tensor:
    """Bradley-Terry loss on raw logits: sum of -log sigmoid(positive - negative) / num_batch_pairs.

    Args:
        positive: (P,) logits of the positives of this part.
        negative: (P,) logits of the negatives, in the same order.
        num_batch_pairs: valid pairs of the whole step.

    Source: arXiv 2508.05613 section 3, reward update.
    """
    # Not log(sigmoid(x)): for a difference of -110 sigmoid is 0 in fp32 and its logarithm infinite.
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
    # From logits, as above: probabilities of 0 and 1 would make the loss infinite where the model is sure.
    losses = F.binary_cross_entropy_with_logits(logits, labels, weight=weights, reduction="sum")
    return losses / num_batch_examples
