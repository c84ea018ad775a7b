"""The policy update's options: equal groups and cut completions left out, warm-up, nothing to learn."""

import copy
import dataclasses

import pytest
import torch

from cooper_rl.config.cooper import CooperConfig
from cooper_rl.distributed.ranks import ALONE
from cooper_rl.distributed.trainable import as_trainable, optimizer_tensors
from cooper_rl.engines.base import Generation
from cooper_rl.method.mismatch import Mismatch
from cooper_rl.models.policy import Policy
from cooper_rl.schema.data import Problem
from cooper_rl.schema.step_metrics import PolicyMetrics
from cooper_rl.training.optimizer import make_adamw, set_warmed_up_lr
from cooper_rl.training.policy_update import (
    backward_share,
    batch_logprobs,
    count_share,
    split_shares,
    update_policy,
)
from cooper_rl.training.rollout import RolloutGroup
from tests.cooper_config import cooper_config

TEXTS = (("7+9=16. #### 16", "The answer is ten."), ("5.", "7-2=5;5*2=10. \\boxed{10}"))
Weights = dict[str, torch.Tensor]


def cooper(**values) -> CooperConfig:
    return cooper_config(**({"group_size": 2} | values))


def groups_of(policy: Policy) -> list[RolloutGroup]:
    """Two problems with a completion that ended and a longer one that was cut."""
    groups = []
    for number, texts in enumerate(TEXTS):
        problem = Problem(id=str(number), source="t", question=f"Tom has {number}.", reference_answer="1")
        ended, cut = (tuple(policy.tokenizer(text)["input_ids"]) for text in texts)
        ended = (*ended, policy.tokenizer.eos_token_id)
        generations = (
            Generation(ended, (0.0,) * len(ended), "stop"),
            Generation(cut, (0.0,) * len(cut), "length"),
        )
        groups.append(
            RolloutGroup(problem, tuple(policy.encode_prompt(problem.question, None)), generations, texts)
        )
    return groups


def update(
    make_policy, advantages: list[float], *, places: tuple[int, ...] = (0, 1), **values
) -> tuple[PolicyMetrics, Weights]:
    policy, reference = make_policy(0), make_policy(1)
    groups = [groups_of(policy)[place] for place in places]
    optimizer = make_adamw(policy.model, lr=1e-4, weight_decay=0.0)
    result = update_policy(
        policy, reference, optimizer, groups, torch.tensor(advantages), config=cooper(**values)
    )
    return result, copy.deepcopy(policy.model.state_dict())


def is_same(one: Weights, other: Weights) -> bool:
    return all(torch.equal(tensor, other[name]) for name, tensor in one.items())


def lengths(make_policy) -> list[int]:
    return [len(g.token_ids) for group in groups_of(make_policy(0)) for g in group.generations]


def test_a_dropped_group_is_as_if_it_had_not_been_drawn(make_policy) -> None:
    """Neither its tokens nor its KL count; left in, it pulls by its KL and thins the mean."""
    dropped, with_drop = update(make_policy, [1.0, -1.0, 0.0, 0.0], advantages__drop_equal_groups=True)
    alone, without_group = update(make_policy, [1.0, -1.0], places=(0,))
    kept, with_group = update(make_policy, [1.0, -1.0, 0.0, 0.0])
    assert dropped == alone
    assert is_same(with_drop, without_group)
    assert kept.loss != pytest.approx(dropped.loss, abs=1e-4)
    assert not is_same(with_drop, with_group)


def test_a_group_whose_first_advantage_is_zero_is_not_dropped(make_policy) -> None:
    """Equal groups are those without any advantage; rewards of 1/2, 0 and 1 begin with one of zero."""
    kept, weights = update(make_policy, [0.0, 1.0, 0.0, 0.0], advantages__drop_equal_groups=True)
    alone, expected = update(make_policy, [0.0, 1.0], places=(0,))
    assert kept == alone
    assert kept.grad_norm > 0
    assert is_same(weights, expected)


def test_dropping_divides_by_the_tokens_that_are_left(make_policy) -> None:
    """Without KL: -(1 * n0 - 1 * n1) / (n0 + n1), not over all four lengths."""
    n = lengths(make_policy)
    dropped, _ = update(
        make_policy, [1.0, -1.0, 0.0, 0.0], advantages__drop_equal_groups=True, policy__kl_coefficient=0.0
    )
    kept, _ = update(make_policy, [1.0, -1.0, 0.0, 0.0], policy__kl_coefficient=0.0)
    assert dropped.loss == pytest.approx(-(n[0] - n[1]) / (n[0] + n[1]), abs=1e-6)
    assert kept.loss == pytest.approx(-(n[0] - n[1]) / sum(n), abs=1e-6)


def test_more_updates_than_groups_that_are_left_are_fewer_updates(make_policy) -> None:
    """One of two groups is left: one share is empty and takes no step."""
    values = {"advantages__drop_equal_groups": True, "policy__updates_per_step": 2, "problems_per_step": 2}
    _, found = update(make_policy, [1.0, -1.0, 0.0, 0.0], **values)
    _, once = update(make_policy, [1.0, -1.0], places=(0,))
    for name, tensor in found.items():
        torch.testing.assert_close(tensor, once[name], atol=1e-6, rtol=1e-5)


def test_a_cut_completion_is_left_out_of_the_loss(make_policy) -> None:
    """Completions 1 and 3 were cut: -(a0 n0 + a2 n2) / (n0 + n2); their advantages do not matter."""
    n = lengths(make_policy)
    found, one = update(
        make_policy, [1.0, -1.0, 0.5, -0.5], policy__overlong_filtering=True, policy__kl_coefficient=0.0
    )
    assert found.loss == pytest.approx(-(n[0] + 0.5 * n[2]) / (n[0] + n[2]), abs=1e-6)
    _, other = update(
        make_policy, [1.0, 9.0, 0.5, 9.0], policy__overlong_filtering=True, policy__kl_coefficient=0.0
    )
    assert is_same(one, other)


def test_a_step_of_cut_completions_alone_takes_no_update(make_policy) -> None:
    policy, reference = make_policy(0), make_policy(1)
    group = groups_of(policy)[0]
    cut = dataclasses.replace(group, generations=(group.generations[1],) * 2)
    optimizer = make_adamw(policy.model, lr=1e-3, weight_decay=0.1)
    before = copy.deepcopy(policy.model.state_dict())
    found = update_policy(
        policy,
        reference,
        optimizer,
        [cut],
        torch.tensor([1.0, -1.0]),
        config=cooper(policy__overlong_filtering=True),
    )
    assert found == PolicyMetrics(loss=0.0, clip_fraction=0.0, grad_norm=0.0)
    assert is_same(before, policy.model.state_dict())
    assert len(optimizer.state) == 0


@pytest.mark.parametrize("drop_equal_groups", [False, True])
def test_advantages_that_are_all_zero_touch_neither_weights_nor_optimiser(
    make_policy, drop_equal_groups: bool
) -> None:
    """Momentum, weight decay and the KL term would all move the weights."""
    policy, reference = make_policy(0), make_policy(1)
    config = cooper(policy__kl_coefficient=0.1, advantages__drop_equal_groups=drop_equal_groups)
    optimizer = make_adamw(policy.model, lr=1e-3, weight_decay=0.1)
    groups = groups_of(policy)
    update_policy(policy, reference, optimizer, groups, torch.tensor([1.0, -1, 1, -1]), config=config)
    before = copy.deepcopy(policy.model.state_dict() | optimizer_tensors(policy.model, optimizer))
    found = update_policy(policy, reference, optimizer, groups, torch.zeros(4), config=config)
    assert found == PolicyMetrics(loss=0.0, clip_fraction=0.0, grad_norm=0.0)
    assert is_same(before, policy.model.state_dict() | optimizer_tensors(policy.model, optimizer))


@pytest.mark.parametrize("num_updates", [1, 2])
def test_only_a_single_update_takes_the_policy_for_the_sampling_policy(make_policy, num_updates: int) -> None:
    """Of two updates, the second one's log-probabilities are those from before the first."""
    policy, reference = make_policy(0), make_policy(1)
    config = cooper(policy__updates_per_step=num_updates, problems_per_step=2)
    shares = split_shares(policy, reference, groups_of(policy), torch.ones(4), config, ALONE)
    assert [len(share) > 0 for share in shares] == [True] * num_updates
    for batch in (batch for share in shares for batch in share):
        expected = None if num_updates == 1 else batch_logprobs(policy, batch.completions, config)
        assert (batch.old_logprobs is None) == (expected is None)
        if batch.old_logprobs is not None and expected is not None:
            assert torch.equal(batch.old_logprobs, expected)


def test_a_filler_batch_counts_in_neither_the_gradient_nor_the_numbers(make_policy) -> None:
    """What a rank of several computes so that all take part equally often, here without other ranks."""
    policy, reference = make_policy(0), make_policy(1)
    config = cooper()
    (share,) = split_shares(
        policy, reference, groups_of(policy), torch.tensor([1.0, -1.0, 0.5, -0.5]), config, ALONE
    )
    filler = [dataclasses.replace(batch, counts=False) for batch in share]
    found = []
    for batches in (share, [*share, *filler]):
        size, mismatch = count_share(batches, config, ALONE), Mismatch()
        policy.model.zero_grad()
        sums = backward_share(policy, as_trainable(policy.model, torch.optim.SGD(policy.model.parameters())),
                         batches, size, mismatch, config)  # fmt: skip
        found.append((size, sums, mismatch, [weight.grad.clone() for weight in policy.model.parameters()
                                             if weight.grad is not None]))  # fmt: skip
    (*numbers, gradients), (*with_filler, same) = found
    assert numbers == with_filler
    assert any(gradient.any() for gradient in gradients)
    assert all(torch.equal(one, other) for one, other in zip(gradients, same, strict=True))


def test_weight_decay_shrinks_matrices_and_neither_biases_nor_norms(make_policy) -> None:
    """Without a gradient AdamW only decays: times 1 - .1 x .5 = .95."""
    model = make_policy(0).model
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    optimizer = make_adamw(model, lr=0.1, weight_decay=0.5)
    for weight in model.parameters():
        weight.grad = torch.zeros_like(weight)
    optimizer.step()
    assert {weight.ndim for weight in before.values()} == {1, 2}
    for name, weight in model.named_parameters():
        assert torch.allclose(weight, before[name] * (0.95 if weight.ndim == 2 else 1.0)), name


def test_the_learning_rate_rises_in_a_line_and_stays(make_policy) -> None:
    """Four steps of warm-up to .8: .2 .4 .6 .8 and .8 ever after; without warm-up .8 at once."""
    optimizer = make_adamw(make_policy(0).model, lr=1.0, weight_decay=0.1)

    def rates(warmup_steps: int) -> list[float]:
        found = []
        for step in (1, 2, 3, 4, 5, 100):
            set_warmed_up_lr(optimizer, 0.8, step=step, warmup_steps=warmup_steps)
            assert len({group["lr"] for group in optimizer.param_groups}) == 1
            found.append(optimizer.param_groups[0]["lr"])
        return found

    assert rates(4) == pytest.approx([0.2, 0.4, 0.6, 0.8, 0.8, 0.8])
    assert rates(0) == [0.8] * 6


def test_a_share_without_an_advantage_takes_no_update_of_its_own(make_policy) -> None:
    """Two updates, the second on a group whose rewards are equal: as if the first group came alone."""
    both, with_share = update(make_policy, [1.0, -1.0, 0.0, 0.0], policy__updates_per_step=2)
    alone, without = update(make_policy, [1.0, -1.0], places=(0,))
    assert both.loss == pytest.approx(alone.loss)
    assert both.grad_norm == pytest.approx(alone.grad_norm)
    assert is_same(with_share, without)


def test_the_gradients_norm_is_the_mean_over_the_updates(make_policy) -> None:
    """The first update is so small that the second one's gradient is nearly that of an update alone."""
    both, _ = update(make_policy, [1.0, -1.0, 2.0, -2.0], policy__updates_per_step=2)
    first, second = (
        update(make_policy, advantages, places=(place,))[0].grad_norm
        for place, advantages in enumerate(([1.0, -1.0], [2.0, -2.0]))
    )
    assert both.grad_norm == pytest.approx((first + second) / 2, rel=0.05)


def test_the_kl_term_is_the_k3_estimate_between_policy_and_reference(make_policy) -> None:
    """Sum of exp(d) - d - 1 over all tokens, d = reference - policy; it weighs .1 beside the advantages."""
    policy, reference = make_policy(0), make_policy(1)
    advantages, n = [1.0, -1.0, 0.5, -0.5], lengths(make_policy)
    config = cooper(policy__kl_coefficient=0.1)
    kl = 0.0
    with torch.no_grad():
        for share in split_shares(policy, reference, groups_of(policy), torch.ones(4), config, ALONE):
            for batch in share:
                own, other = (batch_logprobs(each, batch.completions, config) for each in (policy, reference))
                difference = (other - own)[batch.completions.mask]
                kl += (difference.exp() - difference - 1).sum().item()
    found, _ = update(make_policy, advantages, policy__kl_coefficient=0.1)
    assert found.kl == pytest.approx(kl / sum(n), rel=1e-4)
    gain = sum(advantage * length for advantage, length in zip(advantages, n, strict=True))
    assert found.loss == pytest.approx((0.1 * kl - gain) / sum(n), abs=1e-5)


def test_a_single_token_is_divided_by_one(make_policy) -> None:
    """On policy its ratio is 1: the loss is minus its advantage."""
    policy = make_policy(0)
    group = groups_of(policy)[0]
    ended = dataclasses.replace(
        group, generations=(Generation((policy.tokenizer.eos_token_id,), (0.0,), "stop"),)
    )
    optimizer = make_adamw(policy.model, lr=1e-4, weight_decay=0.0)
    config = cooper(policy__kl_coefficient=0.0)
    found = update_policy(policy, make_policy(1), optimizer, [ended], torch.tensor([0.5]), config=config)
    assert found.loss == pytest.approx(-0.5)
