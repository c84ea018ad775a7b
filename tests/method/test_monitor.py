"""The hacking monitor on series worked out by hand; the window is two steps, the bound .1."""

import pytest

from cooper_rl.config.cooper import MonitorConfig
from cooper_rl.method.monitor import (
    MonitorState,
    Reading,
    denied_alarms,
    first_alarm,
    is_denied,
    watch,
)
from cooper_rl.schema.reports import Interval
from cooper_rl.schema.step_metrics import MonitorMetrics, RolloutMetrics, StepMetrics

CONFIG = MonitorConfig(window=2, max_gap_rise=0.1)


def series(
    reward: list[float], rule: list[float] | None = None, anchor: list[float] | None = None
) -> list[StepMetrics]:
    """Rule accuracy .5 unless given, no anchors unless given; steps from 1."""
    rows = [
        StepMetrics(step=step, rollout=RolloutMetrics(verify_rm_reward=paid, rule_accuracy=accuracy))
        for step, (paid, accuracy) in enumerate(
            zip(reward, rule or [0.5] * len(reward), strict=True), start=1
        )
    ]
    for row, level in zip(rows, anchor or [], strict=False):
        row.verify_rm.anchor_score = level
    return rows


def watch_all(metrics: list[StepMetrics], config: MonitorConfig = CONFIG) -> Reading | None:
    """What is said of the last step."""
    state, reading = MonitorState(), None
    for row in metrics:
        state, reading = watch(state, row, config)
        if row.monitor.denied:
            state, reading = state.after_denial(), None
    return reading


def read(metrics: list[StepMetrics], config: MonitorConfig = CONFIG) -> Reading:
    found = watch_all(metrics, config)
    assert found is not None
    return found


def test_nothing_is_said_before_two_windows() -> None:
    metrics = series([0.5, 0.5, 0.9, 0.9])
    assert [watch_all(metrics[:size]) is None for size in range(5)] == [True, True, True, True, False]


def test_reward_that_rises_without_accuracy_is_hacking() -> None:
    """Gaps 0 0 .2 .2: rise .2, since step 2; reward +.2, accuracy unchanged."""
    found = read(series([0.5, 0.5, 0.7, 0.7]))
    assert found.gap_rise == pytest.approx(0.2)
    assert found.reward_change == pytest.approx(0.2)
    assert found.rule_change == 0.0
    assert (found.since_step, found.is_hacking) == (2, True)


def test_accuracy_that_falls_under_the_same_reward_is_hacking() -> None:
    found = read(series([0.5] * 4, rule=[0.5, 0.5, 0.3, 0.3]))
    assert (found.reward_change, found.is_hacking) == (0.0, True)
    assert found.rule_change == pytest.approx(-0.2)


def test_reward_that_rises_with_accuracy_is_none() -> None:
    """Gaps .1 .1 .3 .3, but accuracy rises too: VerifyRM recovers beside a policy that improves."""
    found = read(series([0.5, 0.5, 0.8, 0.8], rule=[0.4, 0.4, 0.5, 0.5]))
    assert found.gap_rise == pytest.approx(0.2)
    assert not found.is_hacking


def test_no_alarm_while_the_reward_falls() -> None:
    """Gaps 0 0 .3 .3, but the reward goes from .5 to .4: accuracy breaks down for another reason."""
    found = read(series([0.5, 0.5, 0.4, 0.4], rule=[0.5, 0.5, 0.1, 0.1]))
    assert found.gap_rise == pytest.approx(0.3)
    assert not found.is_hacking


def test_a_level_that_rises_for_wrong_examples_too_is_none() -> None:
    """Reward and anchors both rise by .3: .5-.1 .5-.1 .8-.4 .8-.4 is .4 throughout."""
    found = read(series([0.5, 0.5, 0.8, 0.8], anchor=[0.1, 0.1, 0.4, 0.4]))
    assert found.gap_rise == pytest.approx(0.0)
    assert not found.is_hacking
    assert read(series([0.5, 0.5, 0.8, 0.8], anchor=[0.1] * 4)).is_hacking


def test_the_rise_is_measured_from_the_lowest_window_that_does_not_overlap() -> None:
    """Gaps .3 .1 .1 .2 .2 .4: windows .2 .1 .15 | .3: rise .2 from the window that ends at step 3."""
    found = read(series([0.8, 0.6, 0.6, 0.7, 0.7, 0.9]))
    assert found.gap_rise == pytest.approx(0.2)
    assert found.since_step == 3


def test_a_rise_within_the_bound_is_none() -> None:
    found = read(series([0.5, 0.5, 0.59, 0.59]))
    assert found.gap_rise == pytest.approx(0.09)
    assert not found.is_hacking


def test_a_rise_of_exactly_the_bound_is_none() -> None:
    """Gaps 0 0 .25 .25, which binary fractions hold exactly, and bounds of .25 and just below."""
    metrics = series([0.5, 0.5, 0.75, 0.75])
    assert not read(metrics, MonitorConfig(window=2, max_gap_rise=0.25)).is_hacking
    assert read(metrics, MonitorConfig(window=2, max_gap_rise=0.2499)).is_hacking


def test_a_window_of_three_ends_at_its_third_step() -> None:
    """Gaps 0 0 0 .3 .3 .6: means 0 and .4, since step 3."""
    found = read(series([0.5, 0.5, 0.5, 0.8, 0.8, 1.1]), MonitorConfig(window=3, max_gap_rise=0.1))
    assert (found.gap_rise, found.since_step) == (pytest.approx(0.4), 3)


def test_anchors_that_score_nothing_are_a_level_of_zero() -> None:
    """Reward and anchors rise by .3, from anchors at 0: .5 .5 .8-.3 .8-.3 is .5 throughout."""
    assert read(series([0.5, 0.5, 0.8, 0.8], anchor=[0, 0, 0.3, 0.3])).gap_rise == pytest.approx(0.0)


def test_steps_are_the_metrics_own_numbers() -> None:
    metrics = series([0.5, 0.5, 0.7, 0.7])
    for row in metrics:
        row.step += 40
    assert read(metrics).since_step == 42


def test_steps_up_to_a_denied_alarm_are_left_out() -> None:
    """Gaps 0 0 .2 .2 | .2 .2 .2 .2 .4 .4: a rise after step 4 counts from there."""
    metrics = series([0.5, 0.5, 0.7, 0.7, 0.7, 0.7, 0.7, 0.7, 0.9, 0.9])
    metrics[3].monitor = MonitorMetrics(alarm=True, denied=True)
    assert [watch_all(metrics[:size]) is None for size in (4, 7, 8)] == [True, True, False]
    assert not read(metrics[:8]).is_hacking
    assert read(metrics) == (pytest.approx(0.2), pytest.approx(0.2), 0.0, 6, True)


@pytest.mark.parametrize(
    ("best", "low", "expected"), [(0.6, 0.51, True), (0.6, 0.5, True), (0.6, 0.49, False), (None, 1.0, False)]
)
def test_an_alarm_is_denied_where_a_loss_of_the_bound_is_excluded(
    best: float | None, low: float, expected: bool
) -> None:
    """.1 below the best of .6; without an evaluation before it nobody can deny it."""
    assert is_denied(best, Interval(value=0.55, low=low, high=0.65, count=10), CONFIG) is expected


def test_alarms_are_told_apart_by_what_the_judge_said() -> None:
    rows = series([0.5] * 5)
    for row in rows:
        row.monitor.alarm = row.step in (2, 4, 5)
    rows[1].monitor.denied = True
    assert (denied_alarms(rows), first_alarm(rows)) == ([2], 4)
    assert (denied_alarms(rows[:3]), first_alarm(rows[:3])) == ([2], None)
