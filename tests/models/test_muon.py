"""Muon in the precision of the weights, beside torch's in bf16."""

import pytest
import torch
from torch import nn

from cooper_rl.models.muon import LR_RATIO, MuonWithAdamW, orthogonalised


@pytest.mark.parametrize("shape", [(8, 8), (24, 8), (8, 24)])
def test_singular_vectors_stay_and_singular_values_move_close_to_one(shape: tuple[int, int]) -> None:
    """After five iterations they lie in [.5, 1.5], if they began above .05 of the norm."""
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = orthogonalised(matrix)
    u, _, v = torch.linalg.svd(matrix, full_matrices=False)
    inside = u.T @ found @ v.T
    assert torch.allclose(inside, torch.diag(inside.diagonal()), atol=1e-9)
    assert inside.diagonal().min() > 0.5
    assert inside.diagonal().max() < 1.5


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embeddings = nn.Embedding(9, 6)
        self.matrix = nn.Linear(6, 12)
        self.head = nn.Linear(12, 1, bias=False)

    def get_input_embeddings(self) -> nn.Embedding:
        return self.embeddings

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.matrix(self.embeddings(ids)))).sum()


def test_three_updates_are_those_of_torch_up_to_its_bf16() -> None:
    """AdamW has the embeddings, the bias and the head of one row; Muon has the matrix."""
    torch.manual_seed(0)
    ours, theirs = Model(), Model()
    before = ours.matrix.weight.detach().clone()
    theirs.load_state_dict(ours.state_dict())
    optimizer = MuonWithAdamW(ours, lr=1e-2, weight_decay=0.1)
    muon = torch.optim.Muon([theirs.matrix.weight], lr=1e-2 * LR_RATIO, weight_decay=0.0)
    others = [theirs.embeddings.weight, theirs.matrix.bias, theirs.head.weight]
    adamw = torch.optim.AdamW(others, lr=1e-2, betas=(0.9, 0.95), weight_decay=0.1)
    for ids in (range(9), range(8), range(1, 9)):  # as many as give a gradient of full rank
        for model, steppers in ((ours, [optimizer]), (theirs, [muon, adamw])):
            model(torch.tensor(list(ids))).backward()
            for stepper in steppers:
                stepper.step()
                stepper.zero_grad(set_to_none=True)
    change, expected = ours.matrix.weight - before, theirs.matrix.weight - before
    assert (change - expected).norm() < 0.15 * expected.norm()
    for name in ("embeddings.weight", "matrix.bias", "head.weight"):
        assert torch.allclose(ours.get_parameter(name), theirs.get_parameter(name), atol=5e-3)
