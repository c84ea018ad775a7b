"""Distance of the engine's log-probabilities from the trainer's (rows 6 and 9), and the correction.

Both speak of the same tokens and the same weights, and differ by the kernels and the dtype of the engine.
What is left of it is off-policy: the engine drew the tokens, the trainer computes their gradient.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch


def importance_weights(
    trainer_logprobs: torch.Tensor, engine_logprobs: torch.Tensor, *, max_weight: float
) -> torch.Tensor:
    """min(p_trainer / p_engine, max_weight) for every token: truncated importance sampling.

    Elementwise over any shape, no gradient. The ratio alone would be unbiased with unbounded variance.
    Source: https://fengyao.notion.site/off-policy-rl.
    """
    # Detached: it weighs the gradient and has none of its own, else raising the weight would count as
    # learning.
    return (trainer_logprobs - engine_logprobs).detach().exp().clamp_max(max_weight)


@dataclass
class Mismatch:
    """Running sums over the tokens of a step."""

    num_tokens: int = 0
    difference_sum: float = 0.0
    max_difference: float = 0.0
    ratio_sum: float = 0.0

    def add(self, trainer_logprobs: torch.Tensor, engine_logprobs: torch.Tensor, mask: torch.Tensor) -> None:
        """Count the tokens at which `mask` is True; all three have one shape, and none needs a gradient."""
        # In fp64: sums run over millions of tokens, and fp32 stops adding 1e-3 to a sum of 4e4. MPS has none.
        difference = (trainer_logprobs - engine_logprobs).detach()[mask].cpu().double()
        if not len(difference):
            return
        self.num_tokens += len(difference)
        self.difference_sum += difference.abs().sum().item()
        self.max_difference = max(self.max_difference, difference.abs().max().item())
        self.ratio_sum += difference.exp().sum().item()

    @property
    def mean_difference(self) -> float | None:
        """Mean absolute difference in nats; None without tokens."""
        return self.difference_sum / self.num_tokens if self.num_tokens else None

    @property
    def mean_ratio(self) -> float | None:
        """Mean p_trainer / p_engine, before truncation: 1 where both agree; None without tokens."""
        return self.ratio_sum / self.num_tokens if self.num_tokens else None


def add_up(parts: Sequence[Mismatch]) -> Mismatch:
    """The mismatch over the tokens of all parts."""
    return Mismatch(
        num_tokens=sum(part.num_tokens for part in parts),
        difference_sum=sum(part.difference_sum for part in parts),
        # Sums and maxima, so that parts of several ranks or batches add up exactly, whatever their sizes.
        max_difference=max(part.max_difference for part in parts),
        ratio_sum=sum(part.ratio_sum for part in parts),
    )
