"""Phase 6 of a step: one pairwise update of VerifyRM (row 12)."""

from collections.abc import Sequence
from typing import NamedTuple

import torch

from cooper_rl.backends.verify_rm import VerifyItem, VerifyRM
from cooper_rl.config import CooperConfig
from cooper_rl.core.losses import pair_loss
from cooper_rl.schema import PreferencePair
from cooper_rl.training.optimizer import apply_gradients


class RewardUpdate(NamedTuple):
    """Means over the pairs of the step, from before the update."""

    loss: float
    pair_accuracy: float
    """Share of pairs whose positive has the higher logit."""
    grad_norm: float


def update_verify_rm(
    verify_rm: VerifyRM,
    optimizer: torch.optim.Optimizer,
    pairs: Sequence[PreferencePair],
    *,
    config: CooperConfig,
) -> RewardUpdate | None:
    """One optimiser step on the mean loss of all pairs; without pairs nothing is stepped and None returned.

    Positives and negatives go through the same rendering and the same batches.

    Raises:
        TrainingError: the gradient is not finite; the weights are left as before.
    """
    if not pairs:
        return None
    items = [
        VerifyItem(pair.question, pair.reference_answer, text)
        for pair in pairs
        for text in (pair.positive, pair.negative)
    ]
    sequences = verify_rm.encode(items)
    # A pair shares question and reference answer, which a packed batch computes once.
    units = list(zip(sequences[::2], sequences[1::2], strict=True))
    loss = 0.0
    num_ordered = 0
    for batch in verify_rm.split(units, config.max_tokens_per_batch):
        logits = verify_rm.logits([ids for index in batch for ids in units[index]])
        positive, negative = logits[::2], logits[1::2]
        part = pair_loss(positive, negative, num_batch_pairs=len(pairs))
        part.backward()
        loss += part.item()
        num_ordered += int((positive > negative).sum())
    grad_norm = apply_gradients(verify_rm.model, optimizer, config.max_grad_norm, name="VerifyRM")
    return RewardUpdate(loss=loss, pair_accuracy=num_ordered / len(pairs), grad_norm=grad_norm)
