"""Binary cross-entropy training of VerifyRM on labelled examples (before any co-training)."""

import logging
import math
import random
from collections.abc import Sequence
from typing import NamedTuple

import torch

from cooper_rl.backends.verify_rm import VerifyItem, VerifyRM
from cooper_rl.config import VerifyRMConfig
from cooper_rl.core.batching import split_by_tokens
from cooper_rl.core.losses import label_loss
from cooper_rl.core.randomness import derive_seed
from cooper_rl.errors import TrainingError
from cooper_rl.progress import Progress
from cooper_rl.schema import VerifyExample
from cooper_rl.training.optimizer import apply_gradients, make_adamw

logger = logging.getLogger(__name__)


class Fit(NamedTuple):
    """What one training run did."""

    num_updates: int
    final_loss: float
    """Mean loss per example over the last tenth of the updates (at least one)."""


def fit_verify_rm(
    verify_rm: VerifyRM, examples: Sequence[VerifyExample], *, config: VerifyRMConfig, seed: int
) -> Fit:
    """Train in place for `num_epochs`, each in an order drawn with the seed.

    The learning rate warms up linearly, then falls to a tenth along a cosine.

    Raises:
        TrainingError: only one class among the examples, or a gradient that is not finite.
    """
    num_correct = sum(example.label for example in examples)
    if num_correct in {0, len(examples)}:
        raise TrainingError(
            f"all {len(examples)} training examples have the label {examples[0].label}; "
            "VerifyRM needs correct and incorrect completions: sample from weaker or stronger models"
        )
    sequences = verify_rm.encode([VerifyItem(e.question, e.reference_answer, e.completion) for e in examples])
    batches = [
        batch for epoch in range(config.num_epochs) for batch in _epoch(len(examples), epoch, config, seed)
    ]
    optimizer = make_adamw(verify_rm.model, lr=config.lr, weight_decay=config.weight_decay)
    progress = Progress("train_verify_rm", len(batches), logger)
    losses: list[float] = []
    verify_rm.model.train()
    for update, batch in enumerate(batches):
        for group in optimizer.param_groups:
            group["lr"] = config.lr * learning_rate_factor(update, len(batches), config.warmup_fraction)
        loss = 0.0
        for part in split_by_tokens([len(sequences[index]) for index in batch], config.max_tokens_per_batch):
            chosen = [batch[place] for place in part]
            labels = torch.tensor([float(examples[index].label) for index in chosen], device=verify_rm.device)
            logits = verify_rm.logits([sequences[index] for index in chosen])
            part_loss = label_loss(logits, labels, num_batch_examples=len(batch))
            part_loss.backward()
            loss += part_loss.item()
        apply_gradients(verify_rm.model, optimizer, config.max_grad_norm, name="VerifyRM")
        losses.append(loss)
        progress.advance(loss=loss)
    verify_rm.model.eval()
    tail = losses[-max(1, len(losses) // 10) :]
    return Fit(num_updates=len(losses), final_loss=sum(tail) / len(tail))


def learning_rate_factor(update: int, num_updates: int, warmup_fraction: float) -> float:
    """Share of the peak learning rate at `update` (from 0): linear up, then a cosine down to 0.1."""
    warmup = round(num_updates * warmup_fraction)
    if update < warmup:
        return (update + 1) / (warmup + 1)
    done = (update - warmup) / max(1, num_updates - warmup)
    return 0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * done))


def _epoch(num_examples: int, epoch: int, config: VerifyRMConfig, seed: int) -> list[list[int]]:
    order = list(range(num_examples))
    random.Random(derive_seed(seed, "verify_rm_epoch", epoch)).shuffle(order)
    return [order[start : start + config.batch_size] for start in range(0, num_examples, config.batch_size)]
