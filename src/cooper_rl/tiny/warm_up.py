"""Supervised training of one laptop model: the loop that stands for other people's pre-training.

Deliberately plain: no validation, no checkpoints; it takes seconds. Muon turns the matrices and AdamW the
rest, which reaches in 300 updates what AdamW alone does not reach in 500.
"""

import logging
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from cooper_rl.models.muon import MuonWithAdamW
from cooper_rl.progress import Progress
from cooper_rl.tiny.texts import Example

logger = logging.getLogger(__name__)

NUM_RISING_UPDATES = 20
LAST_LR_FRACTION = 0.02
MAX_GRAD_NORM = 1.0
WEIGHT_DECAY = 0.01


def warm_up(
    model: Any,
    batches: Iterable[Sequence[Example]],
    *,
    num_updates: int,
    lr: float,
    name: str,
    after_update: Callable[[int], None] | None = None,
) -> None:
    """Train in place, one update for each of `num_updates` batches.

    Args:
        model: A new causal LM.
        batches: `num_updates` of them; made while the model trains.
        num_updates: Decides the learning rate's course.
        lr: Peak of AdamW's learning rate.
        name: Shown in the progress lines.
        after_update: Told the number of updates done, after each.
    """
    optimizer = MuonWithAdamW(model, lr=lr, weight_decay=WEIGHT_DECAY)
    progress = Progress(f"prepare_models {name}", num_updates, logger)
    model.train()
    for update, batch in enumerate(batches):
        optimizer.param_groups[0]["lr"] = lr * learning_rate_factor(update, num_updates)
        loss = weighted_loss(model, batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_GRAD_NORM)
        optimizer.step()
        optimizer.zero_grad()
        progress.advance(loss=loss.item())
        if after_update is not None:
            after_update(update + 1)
    model.eval()


def learning_rate_factor(update: int, num_updates: int) -> float:
    """Share of the peak at `update` (from 0): linear up over 20 updates times a cosine to 0.02."""
    rising = min(1.0, (update + 1) / NUM_RISING_UPDATES)
    falling = 0.5 * (1 + math.cos(math.pi * update / num_updates))
    return rising * (LAST_LR_FRACTION + (1 - LAST_LR_FRACTION) * falling)


def weighted_loss(model: Any, batch: Sequence[Example]) -> torch.Tensor:
    """Weighted mean of the token losses; logits are computed where the weight is not 0 only.

    Padding stands on the right, where a causal model does not look, so no attention mask is needed.
    """
    longest = max(len(example.token_ids) for example in batch)
    padded = [example.token_ids + [0] * (longest - len(example.token_ids)) for example in batch]
    weighted = [example.weights + [0.0] * (longest - len(example.weights)) for example in batch]
    input_ids = torch.tensor(padded, device=model.device)
    weights = torch.tensor(weighted, device=model.device)[:, 1:]
    hidden = model.get_decoder()(input_ids=input_ids[:, :-1], use_cache=False).last_hidden_state
    is_learned = weights > 0
    logits = model.get_output_embeddings()(hidden[is_learned])
    losses = F.cross_entropy(logits, input_ids[:, 1:][is_learned], reduction="none")
    return (losses * weights[is_learned]).sum() / weights.sum()
