"""Attention in one call over sequences of any length: by its definition on a CPU, and how a GPU is tried."""

import logging
from typing import Any

import pytest
import torch

from cooper_rl.models.packed import varlen
from cooper_rl.models.packed.attention import attend
from cooper_rl.models.packed.forward import packed_logits, packed_states
from cooper_rl.models.packed.packing import pack
from cooper_rl.models.packed.varlen import agrees, attend_varlen, can_vary, make_bounds, one_by_one
from tests.models.packed.test_packed_forward import (
    CAUSAL,
    KINDS,
    SEQUENCES,
    make,
)
from tests.models.packed.test_packed_forward import (
    one_by_one as logits_one_by_one,
)

CPU = torch.device("cpu")


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def test_whole_rows_hold_every_sequence_and_lead_back_to_its_tokens() -> None:
    """[1 2 3] and [1 2 4 5] share two tokens, which stand in the rows of both."""
    batch = pack([[1, 2, 3], [9], [1, 2, 4, 5]], device=CPU, has_groups=False)
    assert batch.token_ids.tolist() == [1, 2, 3, 4, 5, 9]
    assert batch.groups == []
    assert batch.whole is not None
    assert batch.token_ids[batch.whole.tokens].tolist() == [1, 2, 3, 9, 1, 2, 4, 5]
    assert batch.whole.bounds.offsets.tolist() == [0, 3, 4, 8]
    assert batch.whole.bounds.offsets.dtype == torch.int32
    assert batch.whole.bounds.longest == 4
    assert batch.sources.tolist() == [0, 1, 2, 6, 7, 3]
    assert batch.token_ids[batch.last_tokens].tolist() == [3, 9, 5]
    assert batch.order == [0, 1, 2]


def test_each_sequence_is_mixed_as_padded_rows_are() -> None:
    """Two heads share a key; sequences of 3 and 5 tokens, first causal, then the last query of each alone."""
    query, key, value = drawn(8, 4, 6), drawn(8, 2, 6), drawn(8, 2, 6) + 1
    bounds, ones = make_bounds([3, 5], device=CPU), make_bounds([1, 1], device=CPU)
    whole = attend_varlen(query, key, value, asking=bounds, asked=bounds, scale=0.3)
    last = attend_varlen(query[[2, 7]], key, value, asking=ones, asked=bounds, scale=0.3)
    for start, end in ((0, 3), (3, 8)):
        rows = [each[start:end].transpose(0, 1)[None] for each in (query, key, value)]
        expected = attend(rows[0], rows[1], rows[2], None, scale=0.3)[0].transpose(0, 1)
        torch.testing.assert_close(whole[start:end], expected)
    torch.testing.assert_close(last, whole[[2, 7]])


@pytest.mark.parametrize("name", KINDS)
def test_logits_and_gradients_without_groups_are_those_of_the_library(name: str) -> None:
    model = make(name)
    packed = packed_logits(model, pack(SEQUENCES, device=CPU, has_groups=False))
    packed.sin().sum().backward()
    gradients = {key: weight.grad.clone() for key, weight in model.named_parameters()}
    model.zero_grad()
    plain = logits_one_by_one(model)
    plain.sin().sum().backward()
    torch.testing.assert_close(packed, plain, atol=1e-6, rtol=1e-5)
    for key, weight in model.named_parameters():
        torch.testing.assert_close(gradients[key], weight.grad, atol=2e-6, rtol=1e-4)


@pytest.mark.parametrize("name", KINDS)
def test_hidden_states_without_groups_are_those_with_them(name: str) -> None:
    model = CAUSAL[name](make(name).config)
    with_groups, without = (
        pack(SEQUENCES, device=CPU, has_groups=has_groups) for has_groups in (True, False)
    )
    expected, found = packed_states(model, with_groups), packed_states(model, without)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def test_torchs_function_takes_what_it_is_given_and_keeps_the_shapes() -> None:
    """On the device `meta`, where its custom operators have forward and backward without kernels."""
    query, key, value = (
        torch.empty(8, heads, 16, device="meta", dtype=torch.bfloat16, requires_grad=True)
        for heads in (4, 2, 2)
    )
    bounds = make_bounds([3, 5], device=torch.device("meta"))
    mixed = attend_varlen(query, key, value, asking=bounds, asked=bounds, scale=0.3)
    gradients = torch.autograd.grad(mixed.float().sum(), (query, key, value))
    assert [each.shape for each in (mixed, *gradients)] == [(8, 4, 16), (8, 4, 16), (8, 2, 16), (8, 2, 16)]


HEADS: Any = {"num_heads": 4, "num_shared": 2, "head_size": 16, "device": CPU}


def test_a_device_whose_values_are_the_definitions_is_taken() -> None:
    assert agrees(one_by_one, **HEADS)


def test_a_device_is_tried_with_gradients_whatever_the_callers_mode() -> None:
    """The answer is kept for the process: a first call without gradients must not decide it."""
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            assert agrees(one_by_one, **HEADS)


def test_a_device_that_computes_something_else_is_not_taken_and_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def looks_ahead(*given: Any, asking: Any, asked: Any, scale: float) -> torch.Tensor:
        return one_by_one(*given, asking=asking._replace(), asked=asked, scale=scale)

    with caplog.at_level(logging.WARNING):
        assert not agrees(looks_ahead, **HEADS)
    assert "attention in padded groups: torch's for sequences is off by" in caplog.text


def test_a_device_without_the_function_is_not_taken_and_said(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert not agrees(varlen.by_torch, **HEADS)
    assert "attention in padded groups, because torch's for sequences failed" in caplog.text


def test_a_cpu_keeps_its_groups(make_policy) -> None:
    assert not can_vary(make_policy(0).model, "bfloat16")
