"""Group-relative advantages against numbers worked out by hand."""

import re

import pytest
import torch

from cooper_rl.config import names
from cooper_rl.method.advantages import ESTIMATORS, group_advantages, is_flat, overlong_penalties


def test_half_right_group_gives_plus_and_minus_root_three_quarters() -> None:
    """Rewards 1 0 0 1: mean .5, std = sqrt(4 * .25 / 3) = .57735, advantages +-.5 / .57735 = +-.866025."""
    found = group_advantages(torch.tensor([1.0, 0.0, 0.0, 1.0]), group_size=4, std_floor=1e-6)
    torch.testing.assert_close(found, torch.tensor([0.866025, -0.866025, -0.866025, 0.866025]))


def test_groups_do_not_see_each_other() -> None:
    """Rewards 0 1 | 10 12: means .5 and 11, std .707107 and 1.414214: -.707107 .707107 twice."""
    found = group_advantages(torch.tensor([0.0, 1.0, 10.0, 12.0]), group_size=2, std_floor=1e-6)
    torch.testing.assert_close(found, torch.tensor([-0.707107, 0.707107, -0.707107, 0.707107]))


def test_equal_rewards_give_zero_advantages_exactly() -> None:
    """.1 three times has a mean that is not .1 in binary; the result is 0 all the same."""
    found = group_advantages(torch.tensor([0.1, 0.1, 0.1]), group_size=3, std_floor=1e-6)
    assert found.tolist() == [0.0, 0.0, 0.0]


def test_a_group_is_flat_by_its_own_rewards() -> None:
    assert is_flat(torch.tensor([[1.0, 1], [0, 1], [0, 0], [0.5, 0.5]])).tolist() == [True, False, True, True]


def test_near_ties_stay_near_zero_under_the_floor() -> None:
    """Scores .998 .999: the release gives -+.707; with a floor of .05, -+.0005 / .05 = -+.01."""
    found = group_advantages(torch.tensor([0.998, 0.999]), group_size=2, std_floor=0.05)
    torch.testing.assert_close(found, torch.tensor([-0.01, 0.01]), atol=1e-5, rtol=0)


@pytest.mark.parametrize("shape", [(5,), (2, 2)])
def test_rewards_that_do_not_split_into_groups_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=re.escape(f"shape {shape} do not split into groups of 2")):
        group_advantages(torch.zeros(shape), group_size=2, std_floor=0.1)


def test_rloo_compares_a_reward_with_the_mean_of_the_others() -> None:
    """Rewards 1 0 0 .2: others' means .2 / 3, .4, .4, 1 / 3; advantages .933333 -.4 -.4 -.133333.

    That is 4 / 3 of what is left over the group's mean .3: .7 -.3 -.3 -.1.
    """
    rewards = torch.tensor([1.0, 0.0, 0.0, 0.2])
    found = group_advantages(rewards, group_size=4, std_floor=1.0, scale="none", estimator="rloo")
    torch.testing.assert_close(found, torch.tensor([0.933333, -0.4, -0.4, -0.133333]))
    centred = group_advantages(rewards, group_size=4, std_floor=1.0, scale="none")
    torch.testing.assert_close(found, centred * 4 / 3)


@pytest.mark.parametrize("name", names.ESTIMATORS.names)
def test_every_estimator_centres_a_group_and_gives_equal_rewards_nothing(name: str) -> None:
    """Random groups: the sum is 0, and a better reward has a higher advantage."""
    rewards = torch.rand(5, 6, generator=torch.Generator().manual_seed(0))
    centred = ESTIMATORS[name](rewards)
    torch.testing.assert_close(centred.sum(dim=1), torch.zeros(5), atol=1e-5, rtol=0)
    assert torch.equal(centred.argsort(dim=1), rewards.argsort(dim=1))
    flat = group_advantages(torch.full((4,), 0.1), group_size=2, std_floor=0.1, scale="none", estimator=name)
    assert flat.tolist() == [0.0] * 4


def test_a_length_costs_from_the_buffer_on_in_a_line() -> None:
    """Limit 100, buffer 20: free up to 80, then (n - 80) / 20 of the weight .5: 90 costs .25, 100 .5."""
    found = overlong_penalties([1, 80, 85, 90, 100], max_new_tokens=100, buffer_tokens=20, weight=0.5)
    assert found == pytest.approx([0, 0, -0.125, -0.25, -0.5])


def test_a_length_beyond_the_limit_costs_no_more_than_the_weight() -> None:
    found = overlong_penalties([110, 120, 1000], max_new_tokens=100, buffer_tokens=20, weight=0.5)
    assert found == [-0.5, -0.5, -0.5]
