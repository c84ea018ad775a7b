"""Where models run."""

import pytest
import torch

from cooper_rl.machine.device import float64_device, pick_device


@pytest.mark.parametrize(
    ("has_cuda", "has_mps", "expected"),
    [(True, True, "cuda:0"), (False, True, "mps"), (False, False, "cpu")],
)
def test_a_gpu_is_taken_where_there_is_one(
    monkeypatch: pytest.MonkeyPatch, has_cuda: bool, has_mps: bool, expected: str
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_cuda)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: has_mps)
    assert str(pick_device()) == expected


@pytest.mark.parametrize(("device", "expected"), [("mps", "cpu"), ("cuda:1", "cuda:1"), ("cpu", "cpu")])
def test_float64_is_computed_beside_a_device_that_has_none(device: str, expected: str) -> None:
    assert str(float64_device(torch.device(device))) == expected
