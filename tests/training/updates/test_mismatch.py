"""The mismatch between engine and trainer in the policy update: measured without a further forward pass."""

import dataclasses
import math

import pytest
import torch

from cooper_rl.config.cooper import CooperConfig
from cooper_rl.engines.hf import HFEngine
from cooper_rl.models.policy import Policy
from cooper_rl.schema.data import Problem
from cooper_rl.schema.step_metrics import PolicyMetrics
from cooper_rl.training.optimizer import make_adamw
from cooper_rl.training.policy_update import update_policy
from cooper_rl.training.rollout import RolloutGroup, begin_rollouts
from tests.cooper_config import cooper_config

ADVANTAGES = torch.tensor([1.0, -0.5, 0.5, -1.0])
"""Unequal in size, so that completions of one length do not cancel."""
PROBLEMS = [
    Problem(id=str(n), source="t", question=f"Tom has {n} apples.", reference_answer="1") for n in (7, 12)
]


def cooper(**values) -> CooperConfig:
    generation = {"max_new_tokens": 12, "temperature": 0.8}
    return cooper_config(
        **({"group_size": 2, "generation": generation, "policy__kl_coefficient": 0.0} | values)
    )


def rollouts(policy: Policy) -> list[RolloutGroup]:
    engine = HFEngine(policy.model, end_ids=policy.end_ids, pad_id=policy.pad_id)
    return begin_rollouts(
        engine, policy, PROBLEMS, cooper().generation, group_size=2, instruction=None, seed=0
    )()


def update(make_policy, *, shift: float = 0.0, **values) -> tuple[PolicyMetrics, list[int]]:
    """An update on rollouts whose first group's log-probabilities the engine reported too high by `shift`."""
    policy = make_policy(0)
    groups = rollouts(policy)
    shifted = tuple(
        dataclasses.replace(made, logprobs=tuple(value + shift for value in made.logprobs))
        for made in groups[0].generations
    )
    groups[0] = dataclasses.replace(groups[0], generations=shifted)
    optimizer = make_adamw(policy.model, lr=1e-4, weight_decay=0.0)
    found = update_policy(policy, make_policy(1), optimizer, groups, ADVANTAGES, config=cooper(**values))
    return found, [len(made.token_ids) for group in groups for made in group.generations]


@pytest.mark.parametrize("num_updates", [1, 2])
def test_an_engine_on_the_trainers_weights_and_dtype_has_no_mismatch(make_policy, num_updates: int) -> None:
    """Also where there are two updates: the comparison is with the policy that sampled."""
    found, _ = update(make_policy, policy__updates_per_step=num_updates, problems_per_step=2)
    assert found.mismatch == pytest.approx(0, abs=1e-5)
    assert found.max_mismatch == pytest.approx(0, abs=1e-4)
    assert found.importance_ratio == pytest.approx(1, abs=1e-5)


def test_the_mismatch_of_an_engine_that_is_wrong_on_one_group(make_policy) -> None:
    """Twice the probability on n0 + n1 of n tokens: mean ln 2 * share, ratio 1 - share / 2."""
    found, n = update(make_policy, shift=math.log(2))
    share = (n[0] + n[1]) / sum(n)
    assert found.mismatch == pytest.approx(math.log(2) * share, abs=1e-5)
    assert found.max_mismatch == pytest.approx(math.log(2), abs=1e-4)
    assert found.importance_ratio == pytest.approx(1 - share / 2, abs=1e-5)


def test_the_loss_is_corrected_by_option(make_policy) -> None:
    """On policy the loss is -sum(weight * advantage * length) / tokens, weight 1/2 in the first group.

    An engine that reports half the probability gives weight 2, and 1.25 with that bound.
    """
    plain, n = update(make_policy, shift=math.log(2))
    corrected, _ = update(make_policy, shift=math.log(2), policy__max_importance_weight=2.0)
    bounded, _ = update(make_policy, shift=-math.log(2), policy__max_importance_weight=1.25)

    def loss(weight: float) -> float:
        return -(weight * (n[0] - 0.5 * n[1]) + 0.5 * n[2] - n[3]) / sum(n)

    assert plain.loss == pytest.approx(loss(1.0), abs=1e-5)
    assert corrected.loss == pytest.approx(loss(0.5), abs=1e-5)
    assert bounded.loss == pytest.approx(loss(1.25), abs=1e-5)


def test_a_step_that_trains_on_nothing_measures_nothing(make_policy) -> None:
    policy = make_policy(0)
    optimizer = make_adamw(policy.model, lr=1e-4, weight_decay=0.0)
    found = update_policy(
        policy, make_policy(1), optimizer, rollouts(policy), torch.zeros(4), config=cooper()
    )
    assert (found.mismatch, found.max_mismatch, found.importance_ratio) == (None, None, None)
