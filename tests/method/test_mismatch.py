"""The difference between engine and trainer, and its correction, against numbers worked out by hand."""

from dataclasses import asdict

import pytest
import torch

from cooper_rl.method.losses import BatchSize, Clip, policy_loss
from cooper_rl.method.mismatch import Mismatch, add_up, importance_weights

TRAINER = torch.tensor([[0.5, 0.2], [0.1, 0.9]]).log()
ENGINE = torch.tensor([[0.25, 0.4], [0.1, 1e-9]]).log()
MASK = torch.tensor([[True, True], [True, False]])


def test_importance_weights_are_ratios_of_probabilities_up_to_a_bound() -> None:
    """.5/.25 = 2, .2/.4 = .5, .1/.1 = 1; the last would be 9e8. Bound 1.5."""
    found = importance_weights(TRAINER.clone().requires_grad_(), ENGINE, max_weight=1.5)
    torch.testing.assert_close(found, torch.tensor([[1.5, 0.5], [1.0, 1.5]]))
    assert not found.requires_grad


def test_the_mismatch_is_a_mean_over_counted_tokens_of_all_parts() -> None:
    """|ln 2|, |ln .5| and 0 over three tokens: 2 * .693147 / 3 = .462098; ratios (2 + .5 + 1) / 3 = 1.166667.

    The fourth token is not counted.
    """
    mismatch = Mismatch()
    for row in (0, 1):
        mismatch.add(TRAINER[row], ENGINE[row], MASK[row])
    assert mismatch.num_tokens == 3
    assert mismatch.mean_difference == pytest.approx(0.462098, abs=1e-6)
    assert mismatch.max_difference == pytest.approx(0.693147, abs=1e-6)
    assert mismatch.mean_ratio == pytest.approx(1.166667, abs=1e-6)


def test_the_mismatches_of_parts_add_up_to_that_of_the_whole() -> None:
    whole, parts = Mismatch(), [Mismatch(), Mismatch(), Mismatch()]
    whole.add(TRAINER, ENGINE, MASK)
    for row in (0, 1):
        parts[row].add(TRAINER[row], ENGINE[row], MASK[row])
    assert asdict(add_up(parts)) == pytest.approx(asdict(whole))


def test_there_is_no_mismatch_without_tokens() -> None:
    mismatch = Mismatch()
    mismatch.add(TRAINER, ENGINE, torch.zeros_like(MASK))
    assert mismatch.mean_difference is None
    assert mismatch.mean_ratio is None


def test_importance_weights_multiply_the_policy_gradient_and_not_the_kl() -> None:
    """Ratio 1, advantages 1 and -1, weights 1.5, .5 and 1 on three tokens, beta .1.

    Policy part -(1.5 + .5 - 1) / 3 = -.333333. KL of the first token alone, policy 1/2 against reference 1/4:
    .5 + .693147 - 1 = .193147, times .1 / 3 = .006438, not weighed. Sum -.326895.
    Gradient of the first token: -1.5 / 3 + .1 * (1 - .5) / 3 = -.483333.
    """
    logprobs = TRAINER.clone().requires_grad_()
    reference = torch.tensor([[0.25, 0.2], [0.1, 0.9]]).log()
    loss = policy_loss(
        logprobs, TRAINER, reference, torch.tensor([1.0, -1.0]), MASK,
        clip=Clip(0.2, 0.2), kl_coefficient=0.1, size=BatchSize(3, 2, 2),
        importance_weights=importance_weights(TRAINER, ENGINE, max_weight=1.5),
    )  # fmt: skip
    assert loss.loss.item() == pytest.approx(-0.326895, abs=1e-6)
    loss.loss.backward()
    assert logprobs.grad is not None
    assert logprobs.grad[0, 0].item() == pytest.approx(-0.483333, abs=1e-6)
    assert logprobs.grad[1, 1].item() == 0
