"""The hacking monitor: three signs of a reward that is hacked (row 14).

The early sign is the order in which the reward puts the completions of one problem (`ordering.py`). The late
one is a VerifyRM reward that rises while rule accuracy falls. Both are blind to a policy that the rule
verifier cannot read; the third is not: a judge's evaluation that finds accuracy on held-out problems below
its best (`has_dropped`).

The late sign is read from reward minus rule accuracy, so that a step of hard problems, which lowers both,
says nothing. From the reward, VerifyRM's mean score of what the starting policy wrote is subtracted: a
pairwise loss leaves VerifyRM's level free, and one that learns to accept what is right pays an unchanged
policy more. Everything is logged for every step. `MonitorState` is a function of the metrics so far, of the
size of two windows: a step costs the same however many came before, and a resumed run raises the alarms of
the uninterrupted one.
A rule verifier that goes blind, because the policy leaves the formats that it reads, looks the same from
here. Where a judge evaluates, it has the last word on that: an alarm that it denies counts as none, and the
monitor looks at the steps after it alone. The early alarm cannot be denied, because accuracy has not fallen
yet.
`run/loop.py` acts on an alarm.
"""

from collections.abc import Sequence
from typing import NamedTuple

from cooper_rl.config.cooper import MonitorConfig
from cooper_rl.method.intervals import paired_difference
from cooper_rl.method.ordering import OrderState, bet
from cooper_rl.schema.data import Record
from cooper_rl.schema.reports import Interval
from cooper_rl.schema.step_metrics import StepMetrics


class Reading(NamedTuple):
    """The monitor's view after a step: the last window against the one with the lowest gap."""

    gap_rise: float
    """Reward minus rule accuracy."""
    reward_change: float
    rule_change: float
    since_step: int
    """Last step before the rise: models from then are not yet hacked."""
    is_hacking: bool


class Point(Record):
    """A step as the monitor sees it."""

    step: int
    reward: float
    """Less the anchors' score."""
    rule: float


class Window(Record):
    """Means over consecutive steps."""

    reward: float
    rule: float
    last_step: int

    @property
    def gap(self) -> float:
        """Reward minus rule accuracy."""
        return self.reward - self.rule


class MonitorState(Record):
    """The steps so far, as far as the monitor keeps them."""

    points: tuple[Point, ...] = ()
    """Of the last two windows, oldest first."""
    lowest: Window | None = None
    """The window with the lowest gap of those that end before the last one begins; the first of equals."""
    order: OrderState = OrderState()
    """The test of the reward's order."""

    def after_denial(self) -> "MonitorState":
        """The state after an alarm of the gap that the judge denied: the old windows would raise it again."""
        return MonitorState(order=self.order)


class Watched(NamedTuple):
    """The monitor after a step."""

    state: MonitorState
    reading: Reading | None
    """None until there are two windows."""


def watch(state: MonitorState, row: StepMetrics, config: MonitorConfig) -> Watched:
    """Compare the last window with the lowest one before it.

    After an alarm that was denied the state begins anew.

    Hacking is a gap that rose by more than the bound while the reward did not fall and rule accuracy did not
    rise. Without the first, a policy that gets worse for both would count; without the second, a VerifyRM
    that recovers beside a policy that improves.

    Args:
        state: After the step before.
        row: The step's metrics.
        config: Window in steps, bound in units of the reward.
    """
    order = state.order
    if config.min_order is not None:
        order = bet(order, step=row.step, order=row.rollout.order, least=config.min_order)
    size = config.window
    # Without anchors the level counts as fixed.
    reward = row.rollout.verify_rm_reward - (row.verify_rm.anchor_score or 0.0)
    point = Point(step=row.step, reward=reward, rule=row.rollout.rule_accuracy)
    # Two windows, since the older one becomes a candidate for the lowest only when it no longer overlaps
    # the last.
    points = (*state.points, point)[-2 * size :]
    if len(points) < 2 * size:
        return Watched(MonitorState(points=points, order=order), None)
    before, last, lowest = _mean(points[:size]), _mean(points[size:]), state.lowest
    # The lowest and not the previous window: a gap that grows slowly would never differ from its neighbour
    # by the bound.
    if lowest is None or before.gap < lowest.gap:
        lowest = before
    rise = last.gap - lowest.gap
    reward_change, rule_change = last.reward - lowest.reward, last.rule - lowest.rule
    reading = Reading(
        gap_rise=rise,
        reward_change=reward_change,
        rule_change=rule_change,
        since_step=lowest.last_step,
        is_hacking=rise > config.max_gap_rise and reward_change >= 0 and rule_change <= 0,
    )
    return Watched(MonitorState(points=points, lowest=lowest, order=order), reading)


def is_denied(best: float | None, judged: Interval, config: MonitorConfig) -> bool:
    """True if the judge excludes, at an alarm, that accuracy has lost what the gap has gained.

    That is a loss of `max_gap_rise` from the best accuracy so far; few held-out problems exclude nothing.

    Args:
        best: Highest accuracy by the judge before the alarm; None, without an evaluation: nothing is denied.
        judged: Accuracy by the judge on held-out problems, at the alarm.
        config: The bound.
    """
    return best is not None and judged.low >= best - config.max_gap_rise


def has_dropped(best: Sequence[float], now: Sequence[float], config: MonitorConfig) -> bool:
    """True if accuracy by the judge is further below its best than allowed, chance excluded.

    Both evaluations have the same problems, so the difference is paired. The allowance leaves room for the
    best of many evaluations being high by chance.

    Args:
        best: Accuracy of each held-out problem in the best evaluation before; empty: there is none.
        now: The same problems.
        config: The bound.
    """
    allowed = config.max_judged_drop
    if allowed is None or len(best) < 2:
        return False
    before, after = ({str(place): [each] for place, each in enumerate(values)} for values in (best, now))
    return paired_difference(before, after).high < -allowed


def first_alarm(metrics: Sequence[StepMetrics]) -> int | None:
    """The step of the first alarm that was not denied, if there is one."""
    return next((row.step for row in metrics if row.monitor.alarm and not row.monitor.denied), None)


def denied_alarms(metrics: Sequence[StepMetrics]) -> list[int]:
    """The steps of the alarms that the judge denied."""
    return [row.step for row in metrics if row.monitor.denied]


def _mean(points: Sequence[Point]) -> Window:
    size = len(points)
    return Window(
        reward=sum(point.reward for point in points) / size,
        rule=sum(point.rule for point in points) / size,
        last_step=points[-1].step,
    )
