"""Rewards and group-relative advantages (rows 7 and 8).

Departs from the paper in the floor, see `docs/concepts/paper_index.md`.
"""

from collections.abc import Sequence
from typing import Literal, Protocol

import torch

from cooper_rl.config import names
from cooper_rl.registry import Registry
from cooper_rl.schema.data import Verdict


class Estimator(Protocol):
    """The baseline of a reward: a pure function over groups, registered in `ESTIMATORS`."""

    def __call__(self, groups: torch.Tensor) -> torch.Tensor:
        """(N, G) rewards of N groups to (N, G) centred rewards."""
        ...


def group_mean(groups: torch.Tensor) -> torch.Tensor:
    """Reward minus the mean of its group. Source: arXiv 2402.03300 (GRPO)."""
    return groups - groups.mean(dim=1, keepdim=True)


def leave_one_out(groups: torch.Tensor) -> torch.Tensor:
    """Reward minus the mean of the group's other rewards: a baseline that does not depend on the completion.

    Equals `group_mean` times G / (G - 1). Source: arXiv 2402.14740 eq. 8 (RLOO).
    """
    others = (groups.sum(dim=1, keepdim=True) - groups) / (groups.shape[1] - 1)
    return groups - others


ESTIMATORS: Registry[Estimator] = Registry(names.ESTIMATORS)
"""Name in `cooper.advantages.estimator` -> the estimator."""
ESTIMATORS.register("grpo", group_mean)
ESTIMATORS.register("rloo", leave_one_out)


def group_advantages(
    rewards: torch.Tensor,
    *,
    group_size: int,
    std_floor: float,
    scale: Literal["std", "none"] = "std",
    estimator: str = "grpo",
) -> torch.Tensor:
    """Reward relative to its group: (reward - mean) / max(std, std_floor), std with n - 1.

    The released code divides by std + 1e-6, which turns scores of .998 and .999 into -1 and +1.

    Args:
        rewards: (B,) with the groups contiguous, B = problems x group_size.
        group_size: completions per problem.
        std_floor: > 0; smallest divisor.
        estimator: name in `ESTIMATORS`; says what takes the place of `reward - mean`.
        scale: `none` divides by 1 (Dr. GRPO, arXiv 2503.20783): hard and easy problems weigh as they differ.

    Returns:
        (B,) mean 0 in every group, exactly 0 where all rewards of a group are equal.
        The same value counts for every token of a completion.

    Raises:
        ConfigError: no estimator of this name is registered.
        ValueError: B is not a multiple of group_size.

    Source: arXiv 2508.05613 section 3 (GRPO), arXiv 2402.03300 eq. 3.
    """
    if rewards.ndim != 1 or len(rewards) % group_size:
        raise ValueError(
            f"rewards of shape {tuple(rewards.shape)} do not split into groups of {group_size}; "
            f"pass one reward per completion, groups contiguous"
        )
    groups = rewards.view(-1, group_size)
    centred = ESTIMATORS[estimator](groups)
    if scale == "std":
        # With a floor, not an epsilon: scores of .998 and .999 would else be stretched to the same
        # advantages as 0 and 1, and noise would be learned like an answer.
        centred = centred / groups.std(dim=1, keepdim=True).clamp_min(std_floor)
    # The mean of equal numbers is rounded: without this a flat group would get advantages of 1e-8 and count
    # as one that says something.
    return centred.masked_fill(is_flat(groups)[:, None], 0.0).view(-1)


def is_flat(groups: torch.Tensor) -> torch.Tensor:
    """(N, G) rewards -> (N,) bool, True = all of a group's rewards are equal: it says nothing."""
    return groups.amax(dim=1) == groups.amin(dim=1)


def overlong_penalties(
    num_tokens: Sequence[int], *, max_new_tokens: int, buffer_tokens: int, weight: float
) -> list[float]:
    """Penalties for length: 0 up to the buffer before the limit, then in a line down to -weight at the limit.

    Args:
        num_tokens: (B,) completion tokens.
        max_new_tokens: the limit.
        buffer_tokens: tokens before the limit over which the penalty grows.
        weight: the penalty at the limit.

    Source: arXiv 2503.14476 eq. 13 (soft overlong punishment).
    """
    # Rises in a line and is bounded: a cliff at the limit would make two nearly equal completions differ by
    # the whole penalty.
    start = max_new_tokens - buffer_tokens
    return [-weight * min(max(count - start, 0) / buffer_tokens, 1.0) for count in num_tokens]


RewardKind = Literal["verify_rm", "rule", "rule_gated", "judge"]


def accuracies(
    kind: RewardKind, *, rule: Sequence[Verdict], judge: Sequence[Verdict] | None
) -> list[bool | None]:
    """Right or wrong by completion, (B,), as dynamic sampling counts them; None where nobody can say.

    A reward that is a verdict pays an abstention nothing, so there it counts as wrong. A reward with VerifyRM
    in it can tell completions apart on which the rule verifier abstains.

    Source: arXiv 2503.14476 eq. 11 counts `is_equivalent(a, o)`, the rule's answer, whatever is paid.
    """
    if kind == "judge":
        assert judge is not None, "the configuration asks for a judge"
        return [verdict == "correct" for verdict in judge]
    if kind == "rule":
        return [verdict == "correct" for verdict in rule]
    return [None if verdict == "unparsable" else verdict == "correct" for verdict in rule]


def mix_rewards(
    kind: RewardKind,
    *,
    verify_rm: Sequence[float],
    rule: Sequence[Verdict],
    judge: Sequence[Verdict] | None,
) -> list[float]:
    """Rewards that the policy is trained on, (B,) in [0, 1]; an abstention earns nothing from a verdict.

    `rule_gated`: 1 where the rule verifier says correct, VerifyRM's score elsewhere.
    """
    match kind:
        case "verify_rm":
            return list(verify_rm)
        case "rule":
            return [float(verdict == "correct") for verdict in rule]
        case "rule_gated":
            return [
                1.0 if verdict == "correct" else score for verdict, score in zip(rule, verify_rm, strict=True)
            ]
        case "judge":
            assert judge is not None, "the configuration asks for a judge"
            return [float(verdict == "correct") for verdict in judge]
