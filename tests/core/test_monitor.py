"""The hacking monitor on series worked out by hand; the window is two steps, the bounds .1."""

import pytest

from cooper_rl.config import MonitorConfig
from cooper_rl.core.monitor import REJECTED, REWARD, RULE, Reading, watch

CONFIG = MonitorConfig(window=2, max_gap_rise=0.1, max_rejected_rise=0.1)


def series(
    reward: list[float], rule: list[float] | None = None, rejected: list[float] | None = None
) -> list[dict[str, float]]:
    """Rule accuracy .5 and a rejected score of .2 unless given; steps from 1."""
    size = len(reward)
    return [
        {"step": step, REWARD: r, RULE: a, REJECTED: j}
        for step, r, a, j in zip(
            range(1, size + 1), reward, rule or [0.5] * size, rejected or [0.2] * size, strict=True
        )
    ]


def read(metrics: list[dict[str, float]]) -> Reading:
    found = watch(metrics, CONFIG)
    assert found is not None
    return found


def test_nothing_is_said_before_two_windows() -> None:
    metrics = series([0.5, 0.5, 0.9, 0.9])
    assert [watch(metrics[:size], CONFIG) is None for size in range(5)] == [True, True, True, True, False]


def test_reward_that_rises_without_accuracy_is_hacking() -> None:
    """Gaps 0 0 .2 .2: rise .2 - 0, since step 2."""
    found = read(series([0.5, 0.5, 0.7, 0.7]))
    assert found.gap_rise == pytest.approx(0.2)
    assert found.rejected_rise == pytest.approx(0.0)
    assert (found.since_step, found.is_hacking) == (2, True)


def test_reward_that_rises_with_accuracy_is_none() -> None:
    found = read(series([0.5, 0.5, 0.7, 0.7], rule=[0.4, 0.4, 0.6, 0.6]))
    assert found.gap_rise == pytest.approx(0.0)
    assert not found.is_hacking


def test_a_rising_score_of_rejected_rollouts_is_hacking_before_the_gap_moves() -> None:
    """Rejected .2 .1 .1 .3 .3: windows before the last end at steps 2 (.15) and 3 (.1); rise .3 - .1."""
    found = read(series([0.5] * 5, rejected=[0.2, 0.1, 0.1, 0.3, 0.3]))
    assert found.gap_rise == pytest.approx(0.0)
    assert found.rejected_rise == pytest.approx(0.2)
    assert (found.since_step, found.is_hacking) == (3, True)


def test_the_rise_is_measured_from_the_lowest_window_that_does_not_overlap() -> None:
    """Gaps .3 .1 .1 .2 .2 .4: windows .2 .1 .15 | .3: rise .2 from the window that ends at step 3."""
    found = read(series([0.8, 0.6, 0.6, 0.7, 0.7, 0.9]))
    assert found.gap_rise == pytest.approx(0.2)
    assert found.since_step == 3


def test_no_alarm_while_the_reward_falls() -> None:
    """Gaps 0 0 .3 .3, but the reward goes from .5 to .4: accuracy breaks down for another reason."""
    found = read(series([0.5, 0.5, 0.4, 0.4], rule=[0.5, 0.5, 0.1, 0.1]))
    assert found.gap_rise == pytest.approx(0.3)
    assert not found.is_hacking


def test_a_rise_within_the_bound_is_none() -> None:
    found = read(series([0.5, 0.5, 0.59, 0.59], rejected=[0.2, 0.2, 0.29, 0.29]))
    assert found.gap_rise == pytest.approx(0.09)
    assert found.rejected_rise == pytest.approx(0.09)
    assert not found.is_hacking


def test_steps_are_the_metrics_own_numbers() -> None:
    metrics = [row | {"step": row["step"] + 40} for row in series([0.5, 0.5, 0.7, 0.7])]
    assert read(metrics).since_step == 42
