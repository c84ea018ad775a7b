"""Attention by matrix products against torch's own."""

import pytest
import torch

from cooper_rl.models.packed import attention
from cooper_rl.models.packed.attention import attend


def inputs(dtype: torch.dtype, *, num_queries: int) -> list[torch.Tensor]:
    """Three rows of four heads over two heads of seven keys."""
    generator = torch.Generator().manual_seed(0)
    shapes = [(3, 4, num_queries, 16), (3, 2, 7, 16), (3, 2, 7, 16)]
    return [torch.randn(shape, generator=generator).to(dtype).requires_grad_() for shape in shapes]


@pytest.mark.parametrize("kept_keys", [7, 6], ids=["kept", "computed again"])
@pytest.mark.parametrize("num_queries", [7, 3], ids=["causal", "masked"])
def test_products_give_the_values_and_gradients_of_the_library(
    num_queries: int, kept_keys: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "KEPT_KEYS", kept_keys)
    mask = None
    if num_queries < 7:
        ends = torch.tensor([[4, 5, 6], [2, 3, 4], [0, 1, 2]])
        mask = torch.arange(7) <= ends[:, :, None]
    rows = inputs(torch.float32, num_queries=num_queries)
    found = attention.ByProducts.apply(*rows, mask, 0.3)
    expected = attend(*rows, mask, scale=0.3)
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-5)
    for own, theirs in zip(
        torch.autograd.grad(found.sin().sum(), rows),
        torch.autograd.grad(expected.sin().sum(), rows),
        strict=True,
    ):
        torch.testing.assert_close(own, theirs, atol=1e-6, rtol=1e-5)


def test_bf16_values_are_the_same_with_and_without_gradients() -> None:
    rows = inputs(torch.bfloat16, num_queries=7)
    with_gradients = attend(*rows, None, scale=0.3)
    with torch.no_grad():
        without = attend(*rows, None, scale=0.3)
    assert torch.equal(with_gradients, without)


def test_bf16_gradients_hold_where_all_values_share_a_mean() -> None:
    """It cancels in the gradient of the scores, which so must not be rounded before."""
    query, key, value = inputs(torch.bfloat16, num_queries=7)
    rows = [query, key, (value.detach() + 4).requires_grad_()]
    exact = [row.detach().double().requires_grad_() for row in rows]
    attend(*rows, None, scale=0.3).float().sin().sum().backward()
    attend(*exact, None, scale=0.3).sin().sum().backward()
    for row, expected in zip(rows[:2], exact, strict=False):
        assert row.grad is not None
        assert expected.grad is not None
        assert (row.grad - expected.grad).norm() / expected.grad.norm() < 0.04


def test_bf16_gradients_stay_close_to_those_in_fp32() -> None:
    rows = inputs(torch.bfloat16, num_queries=7)
    exact = [row.detach().float().requires_grad_() for row in rows]
    attend(*rows, None, scale=0.3).float().sin().sum().backward()
    attend(*exact, None, scale=0.3).sin().sum().backward()
    for row, expected in zip(rows, exact, strict=True):
        assert row.grad is not None
        assert expected.grad is not None
        torch.testing.assert_close(row.grad.float(), expected.grad, atol=0.02, rtol=0.05)
