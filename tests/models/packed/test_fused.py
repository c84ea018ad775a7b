"""Compiled kernels against their definitions, as the compiler makes them for a CPU."""

import logging
import shutil
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from cooper_rl.models.packed import fused
from cooper_rl.models.packed.fused import gate, rms_norm, target_logprobs, turn

TYPES = [torch.float32, torch.bfloat16]
needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler")


def drawn(draw: torch.Generator, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=draw).to(dtype).requires_grad_()


def check(found: torch.Tensor, expected: torch.Tensor, leaves: list[torch.Tensor]) -> None:
    """Values and gradients, up to one rounding to the type of the result."""
    allowed: dict[str, Any] = {"atol": 1e-5, "rtol": 1e-5}
    if found.dtype == torch.bfloat16 or leaves[0].dtype == torch.bfloat16:
        allowed = {"atol": 0.02, "rtol": 2**-7}
    torch.testing.assert_close(found.float(), expected.float(), **allowed)
    own, theirs = (torch.autograd.grad(each.float().sin().sum(), leaves) for each in (found, expected))
    for ours, exact in zip(own, theirs, strict=True):
        assert ours.dtype == exact.dtype
        torch.testing.assert_close(ours.float(), exact.float(), **allowed)


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize("dtype", TYPES)
def test_each_kernel_computes_its_definition_and_its_gradient(dtype: torch.dtype) -> None:
    draw = torch.Generator().manual_seed(0)
    for rows in (7, 12):  # sizes differ from batch to batch
        heads, cos, sin = (
            drawn(draw, rows, 3, 16, dtype=dtype),
            drawn(draw, rows, 1, 16),
            drawn(draw, rows, 1, 16),
        )
        turned = heads.float() * cos + heads.float().roll(8, dims=-1) * sin
        check(turn(heads, cos, sin), turned.to(dtype), [heads])
        states, weight = drawn(draw, rows, 32, dtype=dtype), drawn(draw, 32)
        scale = (states.float().square().mean(-1, keepdim=True) + 1e-6).rsqrt()
        check(
            rms_norm(states, weight, 1e-6, dtype),
            (states.float() * scale * weight).to(dtype),
            [states, weight],
        )
        gates, others = drawn(draw, rows, 40, dtype=dtype), drawn(draw, rows, 40, dtype=dtype)
        check(gate(gates, others), (F.silu(gates.float()) * others.float()).to(dtype), [gates, others])
        logits, targets = drawn(draw, rows, 50, dtype=dtype), torch.arange(rows) * 3
        exact = -F.cross_entropy(logits.float() / 0.7, targets, reduction="none")
        check(target_logprobs(logits, targets, 0.7), exact, [logits])


def test_a_device_that_cannot_compile_is_said_and_left_to_single_operations(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: Any) -> Callable[..., torch.Tensor]:
        raise RuntimeError("Failed to find C compiler")

    monkeypatch.setattr(fused, "_compiled", refuse)
    with caplog.at_level(logging.WARNING):
        assert not fused.can_compile.__wrapped__(torch.device("cpu"))
    assert "torch.compile failed (RuntimeError: Failed to find C compiler)" in caplog.text


def test_a_cpu_compiles_nothing() -> None:
    assert not fused.is_fused(torch.ones(2))
