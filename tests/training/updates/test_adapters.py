"""A policy with adapters in a checkpoint: a plain merged model, and beside it what is trained."""

import copy

import pytest
import torch

from cooper_rl.distributed.trainable import TRAINED, SingleProcess
from cooper_rl.models.lora import adapter_weights, add_adapters, merged_weights
from cooper_rl.models.policy import Policy
from cooper_rl.training.optimizer import TrainedTensors, make_adamw, read_tensors, write_tensors
from cooper_rl.training.policy_update import update_policy
from tests.training.updates.test_updates import ADVANTAGES, cooper, groups_of

Weights = dict[str, torch.Tensor]


def adapted(make_policy, seed: int) -> tuple[Policy, SingleProcess]:
    policy = make_policy(0)
    add_adapters(policy.model, rank=2, alpha=3.0, seed=seed)
    return policy, SingleProcess(policy.model, make_adamw(policy.model, lr=1e-2, weight_decay=0.1))


def update(make_policy, policy: Policy, trained: SingleProcess) -> None:
    update_policy(policy, make_policy(1), trained, groups_of(policy), ADVANTAGES, config=cooper())


def adapters(policy: Policy) -> Weights:
    return {name: weight.detach().clone() for name, weight in adapter_weights(policy.model).items()}


def is_same(one: Weights, other: Weights) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.fixture
def saved(make_policy) -> tuple[Policy, SingleProcess, TrainedTensors]:
    """After two updates."""
    policy, trained = adapted(make_policy, 7)
    for _ in range(2):
        update(make_policy, policy, trained)
    return policy, trained, copy.deepcopy(read_tensors(policy.model, trained))


def test_the_adapters_alone_are_stepped_and_a_plain_model_is_saved(make_policy, saved) -> None:
    policy, _, tensors = saved
    plain = make_policy(0).model.state_dict()
    assert tensors.weights.keys() == plain.keys()
    assert is_same(tensors.weights, dict(merged_weights(policy.model)))
    assert not is_same(tensors.weights, plain)
    states = ("step", "exp_avg", "exp_avg_sq", TRAINED)
    assert tensors.optimizer.keys() == {f"{name}/{each}" for name in adapters(policy) for each in states}


def test_a_policy_with_adapters_goes_on_bit_for_bit(make_policy, saved) -> None:
    straight, trained, tensors = saved
    resumed, other = adapted(make_policy, 8)
    write_tensors(resumed.model, other, tensors, place="here")
    assert is_same(adapters(resumed), adapters(straight))
    for policy, steps in ((straight, trained), (resumed, other)):
        update(make_policy, policy, steps)
    assert is_same(adapters(resumed), adapters(straight))
    assert is_same(trained.state(), other.state())


def test_adapters_that_no_checkpoint_holds_change_nothing(make_policy, saved) -> None:
    """A run that turns them on over a checkpoint without: the model computes what the checkpoint's does."""
    policy, trained, _ = saved
    write_tensors(policy.model, trained, TrainedTensors(make_policy(0).model.state_dict(), {}), place="here")
    assert trained.state() == {}
    plain = make_policy(0).model.state_dict()
    assert is_same(dict(merged_weights(policy.model)), plain)
