"""Muon for the matrices and AdamW for the rest, behind the interface of one optimiser (rows 4 and 5).

For models that start from scratch, as in the warm-up of the laptop's models. Deliberately left out: saving
its state; VerifyRM's first training is not resumed.
"""

from typing import Any

import torch

LR_RATIO = 4.0
"""Muon's learning rate against AdamW's, as in the warm-up of the laptop's models."""


class MuonWithAdamW:
    """Both are stepped together; the learning rate is set on AdamW's groups and followed by Muon."""

    def __init__(self, model: Any, *, lr: float, weight_decay: float) -> None:
        embeddings = model.get_input_embeddings().weight
        matrices = [w for w in model.parameters() if w.ndim == 2 and w is not embeddings and min(w.shape) > 1]
        others = [w for w in model.parameters() if all(w is not matrix for matrix in matrices)]
        self._muon = torch.optim.Muon(matrices, lr=lr * LR_RATIO, weight_decay=0.0)
        self._adamw = torch.optim.AdamW(others, lr=lr, betas=(0.9, 0.95), weight_decay=weight_decay)
        self.param_groups = self._adamw.param_groups

    def step(self) -> None:
        for group in self._muon.param_groups:
            group["lr"] = self.param_groups[0]["lr"] * LR_RATIO
        self._muon.step()
        self._adamw.step()

    def zero_grad(self, *, set_to_none: bool = True) -> None:
        self._muon.zero_grad(set_to_none=set_to_none)
        self._adamw.zero_grad(set_to_none=set_to_none)
