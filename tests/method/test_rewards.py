"""Which verdict the policy is paid by, and advantages without the standard deviation."""

import pytest
import torch

from cooper_rl.method.advantages import accuracies, group_advantages, mix_rewards

SCORES = [0.9, 0.2, 0.4, 0.7]
RULE = ["correct", "correct", "incorrect", "unparsable"]
JUDGE = ["incorrect", "correct", "correct", "unparsable"]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("verify_rm", [0.9, 0.2, 0.4, 0.7]),
        ("rule", [1.0, 1.0, 0.0, 0.0]),
        ("rule_gated", [1.0, 1.0, 0.4, 0.7]),
        ("judge", [0.0, 1.0, 1.0, 0.0]),
    ],
)
def test_a_reward_is_what_its_name_says(kind, expected: list[float]) -> None:
    assert mix_rewards(kind, verify_rm=SCORES, rule=RULE, judge=JUDGE) == expected


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("verify_rm", [True, True, False, None]),
        ("rule_gated", [True, True, False, None]),
        ("rule", [True, True, False, False]),
        ("judge", [False, True, True, False]),
    ],
)
def test_accuracy_is_the_verdict_behind_a_reward_and_never_its_score(kind, expected) -> None:
    assert accuracies(kind, rule=RULE, judge=JUDGE) == expected


@pytest.mark.parametrize("size", [3, 5])
def test_verdicts_of_other_completions_than_the_scores_are_refused(size: int) -> None:
    with pytest.raises(ValueError, match="zip"):
        mix_rewards("rule_gated", verify_rm=SCORES, rule=["incorrect"] * size, judge=None)


def test_without_the_standard_deviation_rewards_are_only_centred() -> None:
    """1 0 0 1 -> +-.5; 0 0 0 1 -> -.25 -.25 -.25 .75; the floor does not count."""
    rewards = torch.tensor([1.0, 0, 0, 1, 0, 0, 0, 1])
    found = group_advantages(rewards, group_size=4, std_floor=10.0, scale="none")
    assert found.tolist() == [0.5, -0.5, -0.5, 0.5, -0.25, -0.25, -0.25, 0.75]


def test_near_ties_and_ties_stay_what_they_are_without_the_standard_deviation() -> None:
    rewards = torch.tensor([0.998, 0.999, 0.1, 0.1])
    found = group_advantages(rewards, group_size=2, std_floor=1e-6, scale="none")
    torch.testing.assert_close(found[:2], torch.tensor([-0.0005, 0.0005]), atol=1e-7, rtol=0)
    assert found[2:].tolist() == [0.0, 0.0]
