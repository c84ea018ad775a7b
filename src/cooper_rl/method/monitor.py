"""The hacking monitor: VerifyRM's reward rises, rule accuracy falls (row 14).

The signal is reward minus rule accuracy, so that a step of hard problems, which lowers both, says nothing.
From the reward, VerifyRM's mean score of what the starting policy wrote is subtracted: a pairwise loss leaves
VerifyRM's level free, and one that learns to accept what is right pays an unchanged policy more. Everything
is logged for every step, so the monitor keeps no state: what it says at step n is a function of the metrics
up to n, and a resumed run raises the alarms of the uninterrupted one.
A rule verifier that goes blind, because the policy leaves the formats that it reads, looks the same from
here. Where a judge evaluates, it has the last word: an alarm that it denies counts as none, and the monitor
looks at the steps after it alone.
Deliberately left out: what is done about an alarm (`run/loop.py`).
"""

from collections.abc import Sequence
from typing import NamedTuple

from cooper_rl.config.cooper import MonitorConfig
from cooper_rl.schema.data import Interval
from cooper_rl.schema.step_metrics import StepMetrics


class Reading(NamedTuple):
    """What the monitor sees after a step: the last window against the one with the lowest gap."""

    gap_rise: float
    """Reward minus rule accuracy."""
    reward_change: float
    rule_change: float
    since_step: int
    """Last step before the rise: models from then are not yet hacked."""
    is_hacking: bool


def watch(metrics: Sequence[StepMetrics], config: MonitorConfig) -> Reading | None:
    """Compare the last window with the lowest one before it; None until there are two windows.

    Steps up to the last alarm that was denied are left out.

    Hacking is a gap that rose by more than the bound while the reward did not fall and rule accuracy did not
    rise. Without the first, a policy that gets worse for both would count; without the second, a VerifyRM
    that recovers beside a policy that improves.

    Args:
        metrics: One entry per step, in order.
        config: Window in steps, bound in units of the reward.
    """
    size = config.window
    denied = [place for place, row in enumerate(metrics) if row.monitor.denied]
    metrics = metrics[denied[-1] + 1 :] if denied else metrics
    if len(metrics) < 2 * size:
        return None
    rewards = _means([_anchored_reward(row) for row in metrics], size)
    rules = _means([row.rollout.rule_accuracy for row in metrics], size)
    gaps = [reward - rule for reward, rule in zip(rewards, rules, strict=True)]
    # Windows that overlap the last one are left out.
    lowest = min(range(len(gaps) - size), key=lambda place: gaps[place])
    rise, reward_change, rule_change = (values[-1] - values[lowest] for values in (gaps, rewards, rules))
    return Reading(
        gap_rise=rise,
        reward_change=reward_change,
        rule_change=rule_change,
        since_step=metrics[lowest + size - 1].step,
        is_hacking=rise > config.max_gap_rise and reward_change >= 0 and rule_change <= 0,
    )


def is_denied(metrics: Sequence[StepMetrics], judged: Interval, config: MonitorConfig) -> bool:
    """Whether the judge excludes, at an alarm, that accuracy has lost what the gap has gained.

    That is a loss of `max_gap_rise` from the best accuracy so far; few held-out problems exclude nothing.

    Args:
        metrics: One entry per step before the alarm's; without an evaluation among them nothing is denied.
        judged: Accuracy by the judge on held-out problems, at the alarm.
        config: The bound.
    """
    known = [row.eval.judge_accuracy for row in metrics if row.eval.judge_accuracy is not None]
    return bool(known) and judged.low >= max(known) - config.max_gap_rise


def first_alarm(metrics: Sequence[StepMetrics]) -> int | None:
    """The step of the first alarm that was not denied, if there is one."""
    return next((row.step for row in metrics if row.monitor.alarm and not row.monitor.denied), None)


def denied_alarms(metrics: Sequence[StepMetrics]) -> list[int]:
    """The steps of the alarms that the judge denied."""
    return [row.step for row in metrics if row.monitor.denied]


def _anchored_reward(row: StepMetrics) -> float:
    """Without anchors the level counts as fixed."""
    return row.rollout.verify_rm_reward - (row.verify_rm.anchor_score or 0.0)


def _means(values: Sequence[float], size: int) -> list[float]:
    """Of every window, the first one first."""
    return [sum(values[start : start + size]) / size for start in range(len(values) - size + 1)]
