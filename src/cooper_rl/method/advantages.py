"""Rewards and group-relative advantages (rows 7 and 8).

Departs from the paper in the floor, see `docs/paper_index.md`.
"""

from collections.abc import Sequence
from typing import Literal

import torch

from cooper_rl.schema.data import Verdict


def group_advantages(
    rewards: torch.Tensor, *, group_size: int, std_floor: float, scale: Literal["std", "none"] = "std"
) -> torch.Tensor:
    """Reward relative to its group: (reward - mean) / max(std, std_floor), std with n - 1.

    The released code divides by std + 1e-6, which turns scores of .998 and .999 into -1 and +1.

    Args:
        rewards: (B,) with the groups contiguous, B = problems x group_size.
        group_size: completions per problem.
        std_floor: > 0; smallest divisor.
        scale: `none` divides by 1 (Dr. GRPO, arXiv 2503.20783): hard and easy problems weigh as they differ.

    Returns:
        (B,) mean 0 in every group, exactly 0 where all rewards of a group are equal.
        The same value counts for every token of a completion.

    Raises:
        ValueError: B is not a multiple of group_size.

    Source: arXiv 2508.05613 section 3 (GRPO), arXiv 2402.03300 eq. 3.
    """
    if rewards.ndim != 1 or len(rewards) % group_size:
        raise ValueError(
            f"rewards of shape {tuple(rewards.shape)} do not split into groups of {group_size}; "
            f"pass one reward per completion, groups contiguous"
        )
    groups = rewards.view(-1, group_size)
    centred = groups - groups.mean(dim=1, keepdim=True)
    if scale == "std":
        centred = centred / groups.std(dim=1, keepdim=True).clamp_min(std_floor)
    is_flat = groups.amax(dim=1, keepdim=True) == groups.amin(dim=1, keepdim=True)
    return centred.masked_fill(is_flat, 0.0).view(-1)


def mix_rewards(
    kind: Literal["verify_rm", "rule", "rule_gated", "judge"],
    *,
    verify_rm: Sequence[float],
    rule: Sequence[Verdict],
    judge: Sequence[Verdict] | None,
) -> list[float]:
    """What the policy is trained on, (B,) in [0, 1]; an abstention earns nothing from a verdict.

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
