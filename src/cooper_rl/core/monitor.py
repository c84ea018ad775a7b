"""The hacking monitor: VerifyRM pays more for what the rule verifier does not accept (row 14).

Two signals, each against its own lowest window so far: reward minus rule accuracy, and VerifyRM's mean score
of rollouts that the rule verifier calls incorrect. The second does not move when the policy only changes the
form of its answers, and moves before accuracy falls. Both are logged for every step, so the monitor keeps no
state: what it says at step n is a function of the metrics up to n, and a resumed run raises the alarms of the
uninterrupted one. Deliberately left out: what is done about it (`stages/train_cooper.py`).
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from cooper_rl.config import MonitorConfig

REWARD, RULE, REJECTED = "rollout/verify_rm_reward", "rollout/rule_accuracy", "rollout/rejected_score"


class Reading(NamedTuple):
    """What the monitor sees after a step."""

    gap_rise: float
    """Reward minus rule accuracy: mean of the last window above the lowest window's."""
    rejected_rise: float
    """The same of VerifyRM's score of rejected rollouts."""
    since_step: int
    """Last step before the rise: models from then are not yet hacked."""
    is_hacking: bool


def watch(metrics: Sequence[Mapping[str, float]], config: MonitorConfig) -> Reading | None:
    """Compare the last window with the lowest one before it; None until there are two windows.

    No alarm while VerifyRM's reward falls: a policy that gets worse in the eyes of both has another problem.

    Args:
        metrics: One entry per step, in order, with the three keys.
        config: Window in steps, bounds in units of the reward.
    """
    size = config.window
    if len(metrics) < 2 * size:
        return None
    rewards = [row[REWARD] for row in metrics]
    gap = _rise([row[REWARD] - row[RULE] for row in metrics], size)
    rejected = _rise([row[REJECTED] for row in metrics], size)
    is_raised = gap.height > config.max_gap_rise, rejected.height > config.max_rejected_rise
    since = rejected.end if is_raised[1] else gap.end
    reward_change = (sum(rewards[-size:]) - sum(rewards[since - size : since])) / size
    return Reading(
        gap_rise=gap.height,
        rejected_rise=rejected.height,
        since_step=int(metrics[since - 1]["step"]),
        is_hacking=any(is_raised) and reward_change >= 0,
    )


class _Rise(NamedTuple):
    height: float
    end: int
    """Where the lowest window ends, as an index."""


def _rise(values: Sequence[float], size: int) -> _Rise:
    """The last window's mean above the lowest mean of a window that does not overlap it."""
    ends = range(size, len(values) - size + 1)
    means = {end: sum(values[end - size : end]) / size for end in ends}
    lowest = min(ends, key=lambda end: means[end])
    return _Rise(sum(values[-size:]) / size - means[lowest], lowest)
