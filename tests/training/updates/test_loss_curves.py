"""Loss curves do not depend on how a batch is split: several updates in a row, three token budgets.

Plain SGD, because Adam turns the sign of a gradient near zero, which is rounding, into a full step.
"""

import pytest
import torch

from cooper_rl.training.policy_update import update_policy
from cooper_rl.training.reward_update import update_verify_rm
from tests.training.updates.test_updates import ADVANTAGES, cooper, groups_of, pairs_of

BUDGETS = (1, 60, 10_000)
"""One sequence at a time, a few, all at once."""


def test_the_policys_loss_curve_does_not_depend_on_the_split(make_policy) -> None:
    """KL and off-policy halves included; fp32 sums in another order differ by about 1e-7 a step."""
    curves = []
    for budget in BUDGETS:
        policy, reference = make_policy(0), make_policy(1)
        optimizer = torch.optim.SGD(policy.model.parameters(), lr=0.3)
        config = cooper(max_tokens_per_batch=budget, policy__updates_per_step=2, problems_per_step=2)
        curves.append(
            [
                update_policy(policy, reference, optimizer, groups_of(policy), ADVANTAGES, config=config).loss
                for _ in range(5)
            ]
        )
    assert abs(curves[0][0] - curves[0][-1]) > 3e-4
    assert curves[1] == pytest.approx(curves[0], abs=1e-5)
    assert curves[2] == pytest.approx(curves[0], abs=1e-5)


def test_verify_rms_loss_curve_does_not_depend_on_the_split(make_verify_rm) -> None:
    curves = []
    for budget in BUDGETS:
        verify_rm = make_verify_rm(0)
        optimizer = torch.optim.SGD(verify_rm.model.parameters(), lr=0.3)
        config = cooper(max_tokens_per_batch=budget)
        curves.append(
            [update_verify_rm(verify_rm, optimizer, pairs_of(5), config=config).loss for _ in range(5)]
        )
    assert curves[0][0] - curves[0][-1] > 0.01
    assert curves[1] == pytest.approx(curves[0], abs=1e-5)
    assert curves[2] == pytest.approx(curves[0], abs=1e-5)
