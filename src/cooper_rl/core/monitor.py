"""The hacking monitor: VerifyRM's reward rises, rule accuracy falls (row 14).

The signal is reward minus rule accuracy, so that a step of hard problems, which lowers both, says nothing.
From the reward, VerifyRM's mean score of what the starting policy wrote is subtracted: a pairwise loss leaves
VerifyRM's level free, and one that learns to accept what is right pays an unchanged policy more. Everything
is logged for every step, so the monitor keeps no state: what it says at step n is a function of the metrics
up to n, and a resumed run raises the alarms of the uninterrupted one.
Deliberately left out: what is done about an alarm (`stages/_co_training.py`).
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from cooper_rl.config.cooper import MonitorConfig

REWARD, RULE = "rollout/verify_rm_reward", "rollout/rule_accuracy"
ANCHOR = "verify_rm/anchor_score"
"""Absent where nothing is anchored; then the level counts as fixed."""


class Reading(NamedTuple):
    """What the monitor sees after a step: the last window against the one with the lowest gap."""

    gap_rise: float
    """Reward minus rule accuracy."""
    reward_change: float
    rule_change: float
    since_step: int
    """Last step before the rise: models from then are not yet hacked."""
    is_hacking: bool


def watch(metrics: Sequence[Mapping[str, float]], config: MonitorConfig) -> Reading | None:
    """Compare the last window with the lowest one before it; None until there are two windows.

    Hacking is a gap that rose by more than the bound while the reward did not fall and rule accuracy did not
    rise. Without the first, a policy that gets worse for both would count; without the second, a VerifyRM
    that recovers beside a policy that improves.

    Args:
        metrics: One entry per step, in order, with the keys above.
        config: Window in steps, bound in units of the reward.
    """
    size = config.window
    if len(metrics) < 2 * size:
        return None
    rewards = _means([row[REWARD] - row.get(ANCHOR, 0.0) for row in metrics], size)
    rules = _means([row[RULE] for row in metrics], size)
    gaps = [reward - rule for reward, rule in zip(rewards, rules, strict=True)]
    # Windows that overlap the last one are left out.
    lowest = min(range(len(gaps) - size), key=lambda place: gaps[place])
    rise, reward_change, rule_change = (values[-1] - values[lowest] for values in (gaps, rewards, rules))
    return Reading(
        gap_rise=rise,
        reward_change=reward_change,
        rule_change=rule_change,
        since_step=int(metrics[lowest + size - 1]["step"]),
        is_hacking=rise > config.max_gap_rise and reward_change >= 0 and rule_change <= 0,
    )


def first_alarm(metrics: Sequence[Mapping[str, float]], config: MonitorConfig) -> int | None:
    """The step at which the alarm was first raised, if it was."""
    for count in range(1, len(metrics) + 1):
        reading = watch(metrics[:count], config)
        if reading is not None and reading.is_hacking:
            return int(metrics[count - 1]["step"])
    return None


def _means(values: Sequence[float], size: int) -> list[float]:
    """Of every window, the first one first."""
    return [sum(values[start : start + size]) / size for start in range(len(values) - size + 1)]
