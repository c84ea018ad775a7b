"""The order of a reward by hand, and the test of it on bets worked out by hand and on random runs."""

import math
import random

import pytest

from cooper_rl.config.cooper import MonitorConfig
from cooper_rl.method.monitor import MonitorState, watch
from cooper_rl.method.ordering import OrderState, bet, is_proven, order_of
from cooper_rl.schema.step_metrics import RolloutMetrics, StepMetrics


def test_the_order_is_a_mean_over_problems_with_a_right_and_a_wrong_completion() -> None:
    """Problem 1: of two pairs one is a tie. Problem 2: the right one is below. Problem 3: no wrong one."""
    rewards = [0.5, 0.5, 0.1, 0.2, 0.9, 0.7, 0.3]
    verdicts = ["correct", "incorrect", "incorrect", "correct", "incorrect", "correct", "unparsable"]
    assert order_of(rewards, verdicts, [3, 2, 2]) == pytest.approx((0.75 + 0.0) / 2)
    assert order_of(rewards[5:], verdicts[5:], [2]) is None


def follow(orders: list[float | None], least: float = 0.75) -> list[OrderState]:
    state, found = OrderState(), []
    for step, order in enumerate(orders, start=1):
        state = bet(state, step=step, order=order, least=least)
        found.append(state)
    return found


def test_a_bet_wins_what_the_order_lacks_and_another_one_is_opened_where_it_is_worth_more() -> None:
    """Order 1 halves the bet, .25 doubles it. The fifth look's own bet of 1/30 is worth more than 1/32."""
    states = follow([1.0, None, 0.25, 0.25])
    assert [math.exp(state.log_evidence or 0) for state in states] == pytest.approx([1 / 4, 1 / 4, 1 / 2, 1])
    assert [state.since_step for state in states] == [1, 1, 1, 1]
    assert [state.num_looks for state in states] == [1, 1, 2, 3]
    opened = follow([1.0, 1.0, 1.0, 1.0, 0.25])[-1]
    assert (opened.since_step, math.exp(opened.log_evidence or 0)) == (5, pytest.approx(2 / 30))


def test_a_reward_that_was_good_for_long_is_noticed_when_it_is_not() -> None:
    states = follow([1.0] * 300 + [0.5] * 60, least=0.65)
    proven = [is_proven(state, 0.05) for state in states]
    first = proven.index(True)
    assert not any(proven[:300])
    assert 300 < first < 360
    assert states[first].since_step == 301


@pytest.mark.parametrize("spread", [0.0, 0.15, 0.35])
def test_false_alarms_are_as_rare_as_promised(spread: float) -> None:
    """300 runs of 400 steps whose order is the bound on average; the chance of an alarm may be .1."""
    rng, alarms = random.Random(0), 0
    for _ in range(300):
        state = OrderState()
        for step in range(1, 401):
            order = 0.65 + rng.choice([-spread, spread])
            state = bet(state, step=step, order=order, least=0.65)
            if is_proven(state, 0.1):
                alarms += 1
                break
    assert alarms <= 0.1 * 300


def test_the_monitor_takes_the_order_of_each_step_and_keeps_it_over_a_denial() -> None:
    """Thirty steps, before there are two windows of the late sign, from step 101."""
    state, found, config = MonitorState(), [], MonitorConfig(window=20)
    for step in range(101, 131):
        row = StepMetrics(
            step=step, rollout=RolloutMetrics(verify_rm_reward=0.5, rule_accuracy=0.5, order=0.45)
        )
        watched = watch(state, row, config)
        state = watched.state.after_denial() if step == 105 else watched.state
        found.append(is_proven(watched.state.order, config.max_false_alarms))
    assert found == sorted(found)
    assert found.index(True) in range(8, 16)
    assert state.order.since_step == 101
    off = watch(MonitorState(), row, MonitorConfig(window=20, min_order=None))
    assert off.state.order.log_evidence is None
