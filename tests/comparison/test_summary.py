"""Hacked or not, and what the monitor let pass, from curves made by hand."""

import math

import pytest

from cooper_rl.comparison.summary import Curve, count_judge_calls, is_hacked, lost_points, make_curves
from cooper_rl.schema.step_metrics import (
    EvalMetrics,
    JudgeMetrics,
    PolicyMetrics,
    RolloutMetrics,
    StepMetrics,
)
from tests.stages.run_files import make_evaluation

ACCURACY = Curve(steps=[0, 10, 20, 30], values=[0.50, 0.58, 0.52, 0.30])


def test_points_lost_at_the_alarm_count_from_the_peak_before_it_to_the_next_evaluation() -> None:
    """Alarm at 12: peak .58 (step 10), next evaluation .52 (step 20): .06. At 35: the last one."""
    assert lost_points(ACCURACY, 12) == pytest.approx(0.06)
    assert lost_points(ACCURACY, 10) == pytest.approx(0.0)
    assert lost_points(ACCURACY, 35) == pytest.approx(0.28)


def test_hacked_means_far_below_its_peak_with_the_reward_kept() -> None:
    """.58 - .30 = .28 lost; the reward at the peak is .5, at the end .9 or .4."""
    assert is_hacked(ACCURACY, Curve(steps=[0, 10, 20, 30], values=[0.4, 0.5, 0.7, 0.9]))
    assert not is_hacked(ACCURACY, Curve(steps=[0, 10, 20, 30], values=[0.4, 0.5, 0.7, 0.4]))
    steady = Curve(steps=[0, 10, 20, 30], values=[0.50, 0.58, 0.52, 0.49])
    assert not is_hacked(steady, Curve(steps=[0, 10, 20, 30], values=[0.4, 0.5, 0.7, 0.9]))


def test_ten_points_are_not_more_than_ten_points_wherever_they_are_lost() -> None:
    """24 of 240 completions; 25 are more."""
    kept = Curve(steps=[0, 10], values=[0.5, 0.9])
    for peak in range(25, 241):
        for lost, hacked in ((24, False), (25, True)):
            ends = Curve(steps=[0, 10], values=[peak / 240, (peak - lost) / 240])
            assert is_hacked(ends, kept) == hacked


def test_hacked_compares_the_same_steps_when_a_judge_was_away() -> None:
    """Without the verdicts of step 10 the peak is step 20: .7 was paid there, and .6 at the end."""
    away = Curve(steps=[0, 20, 30], values=[0.50, 0.52, 0.30])
    assert not is_hacked(away, Curve(steps=[0, 10, 20, 30], values=[0.4, 0.5, 0.7, 0.6]))
    assert is_hacked(away, Curve(steps=[0, 10, 20, 30], values=[0.4, 0.8, 0.7, 0.75]))


def test_judge_calls_of_a_run_are_those_of_its_steps_unless_a_step_did_not_count() -> None:
    """3 + 0 + 4; a step of an earlier version leaves nothing to say."""
    rows = [
        StepMetrics(
            step=number,
            rollout=RolloutMetrics(verify_rm_reward=0.5, rule_accuracy=0.5),
            judge=JudgeMetrics(calls=calls),
        )
        for number, calls in enumerate((3, 0, 4), start=1)
    ]
    assert count_judge_calls(rows) == 7
    rows[1].judge = JudgeMetrics()
    assert count_judge_calls(rows) is None


@pytest.mark.parametrize(("evaluated", "steps"), [((), [0, 4]), ((2,), [0, 2, 4]), ((2, 4), [0, 2, 4])])
def test_a_run_that_was_not_evaluated_while_it_trained_is_judged_by_its_end(
    evaluated: tuple[int, ...], steps: list[int]
) -> None:
    rollout, done = (
        RolloutMetrics(verify_rm_reward=0.5, rule_accuracy=0.5),
        EvalMetrics(judge_accuracy=0.6, rule_accuracy=0.5, verify_rm_reward=0.7),
    )
    rows = [
        StepMetrics(step=step, rollout=rollout, eval=done if step in evaluated else EvalMetrics())
        for step in range(1, 5)
    ]
    curves = make_curves(rows, make_evaluation(0, 0.6, 0.7), make_evaluation(4, 0.2, 0.9))
    accuracy, reward = curves["eval/judge_accuracy"], curves["eval/verify_rm_reward"]
    assert accuracy.steps == reward.steps == steps
    assert accuracy.values[-1] == (0.6 if 4 in evaluated else pytest.approx(0.2))
    assert is_hacked(accuracy, reward) == (4 not in evaluated)


@pytest.mark.parametrize("kl", [math.nan, math.inf])
def test_a_number_that_is_not_finite_is_no_point_of_a_curve(kl: float) -> None:
    """JSON has no word for it: it would end the page's script, and leave the report unreadable."""
    rollout = RolloutMetrics(verify_rm_reward=0.5, rule_accuracy=0.5)
    rows = [
        StepMetrics(
            step=step, rollout=rollout, policy=PolicyMetrics(loss=0, kl=each, clip_fraction=0, grad_norm=1)
        )
        for step, each in ((1, 0.5), (2, kl), (3, 0.25))
    ]
    curve = make_curves(rows, make_evaluation(0, 0.6, 0.7), make_evaluation(3, 0.6, 0.7))["policy/kl"]
    assert Curve.model_validate_json(curve.model_dump_json()) == Curve(steps=[1, 3], values=[0.5, 0.25])
