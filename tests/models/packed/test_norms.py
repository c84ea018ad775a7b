"""RMS norm in few passes against the library's."""

import torch
from transformers.models.qwen2.modeling_qwen2 import Qwen2RMSNorm

from cooper_rl.models.packed.norms import normed


def made(shape: tuple[int, ...]) -> tuple[Qwen2RMSNorm, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    norm = Qwen2RMSNorm(shape[-1], eps=1e-3)
    norm.weight.data = torch.rand(shape[-1], generator=generator) + 0.5
    return norm, torch.randn(shape, generator=generator).requires_grad_()


def gradients(norm: Qwen2RMSNorm, states: torch.Tensor, out: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return torch.autograd.grad(out.float().sin().sum(), (states, norm.weight))


def test_values_are_the_librarys_rounded_once_and_gradients_close() -> None:
    for shape in [(5, 16), (5, 3, 16)]:
        norm, states = made(shape)
        expected = norm(states)
        with torch.autocast("cpu", torch.bfloat16):
            found = normed(norm, states)
        assert found.dtype == torch.bfloat16
        torch.testing.assert_close(found.float(), expected, atol=1e-6, rtol=2**-8)
        for own, theirs in zip(
            gradients(norm, states, found), gradients(norm, states, expected), strict=True
        ):
            torch.testing.assert_close(own, theirs, atol=0.02, rtol=0.02)


def test_the_gradient_is_exact_up_to_the_rounding() -> None:
    norm, states = made((5, 16))
    rounded = torch.randn(5, 16, generator=torch.Generator().manual_seed(1)).bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        found = normed(norm, states)
    own = torch.autograd.grad(found, (states, norm.weight), rounded)
    theirs = torch.autograd.grad(norm(states), (states, norm.weight), rounded.float())
    torch.testing.assert_close(own, theirs, atol=1e-5, rtol=1e-5)


def test_a_frozen_weight_gets_no_gradient_and_changes_none() -> None:
    norm, states = made((5, 16))
    with torch.autocast("cpu", torch.bfloat16):
        expected = gradients(norm, states, normed(norm, states))[0]
        norm.weight.requires_grad_(False)
        normed(norm, states).float().sin().sum().backward()
    assert states.grad is not None
    assert torch.equal(states.grad, expected)
    assert norm.weight.grad is None


def test_fp32_takes_the_librarys_own() -> None:
    norm, states = made((5, 16))
    assert torch.equal(normed(norm, states), norm(states))


def test_weights_and_states_in_bf16_are_taken_too() -> None:
    norm, states = made((5, 16))
    rounded = states.detach().bfloat16().requires_grad_()
    half = Qwen2RMSNorm(16, eps=1e-3).bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        found = normed(half, rounded)
    own = torch.autograd.grad(found.float().sin().sum(), (rounded, half.weight))
    assert {each.dtype for each in own} == {torch.bfloat16}
    norm.weight.data.fill_(1.0)
    for given, expected in zip(own, gradients(norm, states, norm(states)), strict=True):
        torch.testing.assert_close(given.float(), expected, atol=0.05, rtol=0.05)
