"""Phase 6 of a step: one pairwise update of VerifyRM (row 12).

Departures from the paper, both off unless configured: labelled examples beside the pairs, and an average of
the weights that scores. `gate.py` may take an update back.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch

from cooper_rl.config.cooper import CooperConfig
from cooper_rl.distributed.trainable import Trainable, as_trainable
from cooper_rl.method.losses import label_loss, pair_loss
from cooper_rl.models.verify_rm import VerifyItem, VerifyRM
from cooper_rl.schema.data import PreferencePair, VerifyExample
from cooper_rl.training.optimizer import apply_gradients, recomputing


class RewardUpdate(NamedTuple):
    """Means over the pairs of the step, from before the update."""

    loss: float
    pair_accuracy: float | None
    """Share of pairs whose positive has the higher logit; None without pairs."""
    grad_norm: float
    replay_loss: float
    """Mean log loss on the labelled examples; 0 without any."""


def update_verify_rm(
    verify_rm: VerifyRM,
    optimizer: Trainable | torch.optim.Optimizer,
    pairs: Sequence[PreferencePair],
    labelled: Sequence[VerifyExample] = (),
    *,
    config: CooperConfig,
) -> RewardUpdate | None:
    """One optimiser step on the mean loss of all pairs; without pairs and labels it is no step, and None.

    Positives and negatives go through the same rendering and the same batches. With `reward.ema_decay` the
    weights that are stepped live in the optimiser's state, and the model holds their moving average.

    Args:
        verify_rm: Changed in place.
        optimizer: Over its weights.
        pairs: Of the step.
        labelled: Replayed examples and audited rollouts: their mean label loss, times `replay_weight`, is
            added.
        config: Section `cooper`.

    Raises:
        TrainingError: the gradient is not finite; the weights are left as before.
    """
    if not pairs and not labelled:
        return None
    trained = as_trainable(verify_rm.model, optimizer)
    # An update that ran out of memory left the gradient of its first batches, and its step is taken again.
    verify_rm.model.zero_grad()
    with trained.averaging(config.reward.ema_decay):
        with trained.gather(), recomputing(verify_rm.model, is_on=config.gradient_checkpointing):
            own = _backward_pairs(verify_rm, trained, pairs, config)
            own_labels = _backward_labels(verify_rm, trained, labelled, config) if labelled else 0.0
        loss, num_ordered, labels_loss = trained.ranks.sums(*own, own_labels)
        grad_norm = apply_gradients(trained, config.max_grad_norm, name="VerifyRM")
    return RewardUpdate(loss, num_ordered / len(pairs) if pairs else None, grad_norm, labels_loss)


def _backward_pairs(
    verify_rm: VerifyRM, trained: Trainable, pairs: Sequence[PreferencePair], config: CooperConfig
) -> tuple[float, int]:
    """This rank's part of the mean loss over the pairs, and how many have the positive above the negative."""
    items = [
        VerifyItem(pair.question, pair.reference_answer, text)
        for pair in pairs
        for text in (pair.positive, pair.negative)
    ]
    groups = verify_rm.encode_compared(items)
    # A pair shares question and reference answer, which a packed batch computes once.
    units = [positive + negative for positive, negative in zip(groups[::2], groups[1::2], strict=True)]
    loss, num_ordered = 0.0, 0
    ranks = trained.ranks
    max_tokens = ranks.share_tokens([sum(map(len, unit)) for unit in units], config.max_tokens_per_batch)
    for batch, counts in ranks.deal(verify_rm.split(units, max_tokens)):
        logits = verify_rm.counted_logits([groups[2 * index + half] for index in batch for half in (0, 1)])
        positive, negative = logits[::2], logits[1::2]
        # Divided by the pairs of all ranks, whose gradients add up. A filler counts 0, and is run for the
        # collective calls of its backward.
        part = pair_loss(positive, negative, num_batch_pairs=len(pairs)) * counts
        trained.backward(part)
        loss += part.item()
        num_ordered += int((positive > negative).sum()) * counts
    return loss, num_ordered


def _backward_labels(
    verify_rm: VerifyRM, trained: Trainable, examples: Sequence[VerifyExample], config: CooperConfig
) -> float:
    groups = verify_rm.encode_compared(
        [VerifyItem(e.question, e.reference_answer, e.completion) for e in examples]
    )
    loss = 0.0
    ranks = trained.ranks
    max_tokens = ranks.share_tokens([sum(map(len, group)) for group in groups], config.max_tokens_per_batch)
    for batch, counts in ranks.deal(verify_rm.split(groups, max_tokens)):
        labels = torch.tensor([float(examples[index].label) for index in batch], device=verify_rm.device)
        logits = verify_rm.counted_logits([groups[index] for index in batch])
        part = label_loss(logits, labels, num_batch_examples=len(examples)) * counts
        trained.backward(config.reward.replay_weight * part)
        loss += part.item()
    return loss
