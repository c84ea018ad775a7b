"""Muon for the matrices of a model from scratch, AdamW for the rest (rows 4 and 5).

`torch.optim.Muon` orthogonalises in bf16, which a processor without bf16 products emulates: for the laptop's
policy an update takes 22 times as long as in fp32, and even with AVX-512 bf16 twice as long. This optimiser
stays in the precision of the weights. Source: Muon, Keller Jordan et al.; coefficients as in torch 2.13.
"""

import math
from typing import Any

import torch

LR_RATIO = 4.0
"""Muon's learning rate against AdamW's."""
MOMENTUM = 0.95
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the quintic, steep at 0: small singular values come near 1 in few steps, and do not settle there."""
NUM_ITERATIONS = 5
"""As in torch."""


class MuonWithAdamW:
    """Steps both together. The learning rate is set on AdamW's groups, and Muon's follows it."""

    def __init__(self, model: Any, *, lr: float, weight_decay: float) -> None:
        embeddings = model.get_input_embeddings().weight
        self._matrices = [
            # Embeddings are tables and not maps: their rows are not to become orthogonal to each other.
            w
            for w in model.parameters()
            if w.ndim == 2 and w is not embeddings and min(w.shape) > 1
        ]
        others = [w for w in model.parameters() if all(w is not matrix for matrix in self._matrices)]
        self._adamw = torch.optim.AdamW(others, lr=lr, betas=(0.9, 0.95), weight_decay=weight_decay)
        self.param_groups = self._adamw.param_groups
        self.state = self._adamw.state
        """Weight -> its tensors by name, as in torch's optimisers; of a matrix its `momentum`."""

    @torch.no_grad()
    def step(self) -> None:
        """One update of every weight that has a gradient."""
        lr = self.param_groups[0]["lr"] * LR_RATIO
        for matrix in self._matrices:
            if matrix.grad is None:
                continue
            momentum = self.state[matrix].setdefault("momentum", torch.zeros_like(matrix))
            momentum.lerp_(matrix.grad, 1 - MOMENTUM)
            update = orthogonalised(matrix.grad.lerp(momentum, MOMENTUM))  # Nesterov
            # The factor keeps the update's size per entry alike for tall and for wide matrices.
            matrix.add_(update, alpha=-lr * math.sqrt(max(1.0, matrix.shape[0] / matrix.shape[1])))
        self._adamw.step()

    def zero_grad(self, *, set_to_none: bool = True) -> None:
        """Clear the gradients of all weights."""
        for matrix in self._matrices:
            matrix.grad = None if set_to_none else torch.zeros_like(matrix)
        self._adamw.zero_grad(set_to_none=set_to_none)


def orthogonalised(matrix: torch.Tensor) -> torch.Tensor:
    """The matrix with all its singular values moved close to 1, by a quintic Newton-Schulz iteration.

    Args:
        matrix: (M, N). Its singular vectors stay.
    """
    a, b, c = COEFFICIENTS
    is_tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if is_tall else matrix  # the Gram matrix is of the smaller side
    x = x / x.norm().clamp(min=1e-7)  # the iteration converges for a spectral norm of at most 1
    for _ in range(NUM_ITERATIONS):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if is_tall else x
