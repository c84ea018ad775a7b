"""Group-relative advantages (row 8). Departs from the paper in the floor, see `docs/paper_index.md`."""

import torch


def group_advantages(rewards: torch.Tensor, *, group_size: int, std_floor: float) -> torch.Tensor:
    """Reward relative to its group: (reward - mean) / max(std, std_floor), std with n - 1.

    The released code divides by std + 1e-6, which turns scores of .998 and .999 into -1 and +1.

    Args:
        rewards: (B,) with the groups contiguous, B = problems x group_size.
        group_size: completions per problem.
        std_floor: > 0; smallest divisor.

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
    scaled = centred / groups.std(dim=1, keepdim=True).clamp_min(std_floor)
    is_flat = groups.amax(dim=1, keepdim=True) == groups.amin(dim=1, keepdim=True)
    return scaled.masked_fill(is_flat, 0.0).view(-1)
