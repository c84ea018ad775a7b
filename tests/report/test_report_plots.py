"""The figures of the report cope with whatever phases ran."""

import json
import math
from collections.abc import Sequence

import pytest

from cooper_rl.report.plots import (
    Arm,
    along_kl,
    frontier_figure,
    headline_plot,
    held_out_figure,
    moving_mean,
    reward_figure,
    series,
    training_figures,
)
from cooper_rl.schema.step_metrics import EvalMetrics, PolicyMetrics, RolloutMetrics, StepMetrics
from tests.stages.run_files import make_evaluation, make_metrics


def test_phases_that_did_not_run_leave_no_figure():
    rows = [
        StepMetrics(step=row.step, rollout=row.rollout, seconds={"rollout": 2.0}) for row in make_metrics(5)
    ]
    for row in rows:
        row.rollout = RolloutMetrics(verify_rm_reward=0.5, rule_accuracy=0.5)
    assert [figure.title for figure in training_figures([Arm("", rows)])] == [
        "VerifyRM reward and rule accuracy of the rollouts", "Seconds per step, by phase",
    ]  # fmt: skip
    assert training_figures([Arm("", [])]) == []


def test_verify_rm_reward_has_that_name_in_every_figure() -> None:
    points = [make_evaluation(step, accuracy=0.4, reward=0.5) for step in (0, 20)]
    arms = [Arm("", make_metrics(20), points), Arm("frozen", make_metrics(20), points)]
    drawn = [held_out_figure(arms), reward_figure(arms), frontier_figure(arms)]
    plots = [headline_plot(points), *(figure.plot for figure in drawn if figure)]
    labels = [{line.label for line in plot.lines if "reward" in line.label} for plot in plots]
    assert labels[0] == {"VerifyRM reward"}
    assert labels[1:] == [{"VerifyRM reward", "frozen: VerifyRM reward"}] * 3


def test_the_line_of_the_start_is_of_the_verdicts_that_name_it() -> None:
    """The start is at .4 by the judge and at .283 by the rule: 68 of 240."""
    judged = [make_evaluation(step, accuracy=0.4, reward=0.5) for step in (0, 20)]
    by_rule = [make_evaluation(step, accuracy=0.4, reward=0.5, judge=False) for step in (0, 20)]
    for own, other, label, start in (
        (judged, by_rule, "accuracy", 0.4),
        (by_rule, judged, "rule accuracy", by_rule[0].rule_accuracy.value),
    ):
        figure = held_out_figure([Arm("", [], own), Arm("frozen", [], other)])
        assert figure is not None
        lines = {line.label: line for line in figure.plot.lines}
        assert set(lines[f"{label} at the start"].ys) == {start}
    figure = held_out_figure([Arm("", [], [by_rule[0], *judged[1:]])])
    assert figure is not None
    assert not any("at the start" in line.label for line in figure.plot.lines)


@pytest.mark.parametrize("steps", [1, 2])
def test_very_short_runs_can_be_drawn(steps):
    figures = training_figures([Arm("", make_metrics(steps))])
    assert len(figures) == 12
    assert "NaN" not in "".join(figure.svg for figure in figures)


def test_series_skip_what_is_not_finite_and_average_long_runs():
    rollouts = [
        RolloutMetrics(verify_rm_reward=n % 2, rule_accuracy=math.nan if n == 1 else 1.0)
        for n in range(1, 401)
    ]
    rows = [StepMetrics(step=n, rollout=rollout) for n, rollout in enumerate(rollouts, start=1)]
    steps, values = series(rows, lambda row: row.rollout.verify_rm_reward)
    assert (len(steps), steps[0], values[:2]) == (100, 2.5, [0.5, 0.5])
    assert series(rows[:3], lambda row: row.rollout.rule_accuracy) == ([2.0, 3.0], [1.0, 1.0])


def test_the_moving_mean_of_forty_points_spans_five():
    """Reach 40 // 20 = 2: the middle of 0..39 stays itself, the first is the mean of 0, 1, 2."""
    means = moving_mean([float(value) for value in range(40)])
    assert (means[0], means[20], means[39]) == (1.0, 20.0, 38.0)


def test_the_same_figures_are_drawn_twice():
    arms = [Arm("", make_metrics(3)), Arm("frozen", make_metrics(2))]
    assert training_figures(arms) == training_figures(arms)


def rows_with_kl(kls: Sequence[float | None], *, evaluated: tuple[int, ...] = ()) -> list[StepMetrics]:
    """Steps from 1 whose rollouts are right .2 of the time; evaluations say .5 and .7."""
    return [
        StepMetrics(
            step=step,
            rollout=RolloutMetrics(verify_rm_reward=0.4, rule_accuracy=0.2),
            policy=PolicyMetrics(loss=0.0, kl=kl, clip_fraction=0.0, grad_norm=1.0),
            eval=EvalMetrics(judge_accuracy=0.5, verify_rm_reward=0.7)
            if step in evaluated
            else EvalMetrics(),
        )
        for step, kl in enumerate(kls, start=1)
    ]


def test_the_frontier_has_the_evaluations_at_the_kl_of_their_steps() -> None:
    figure = frontier_figure([Arm("", rows_with_kl([0.01, 0.03, 0.02, 0.05], evaluated=(2, 4)))])
    assert figure is not None
    assert [(line.label, line.xs, line.ys) for line in figure.plot.lines] == [
        ("accuracy", [0.03, 0.05], [0.5, 0.5]),
        ("VerifyRM reward", [0.03, 0.05], [0.7, 0.7]),
    ]
    assert "KL to the start" in figure.svg


def test_the_frontier_of_a_run_without_evaluations_has_its_rollouts() -> None:
    figure = frontier_figure([Arm("", rows_with_kl([0.01, 0.03, 0.02]))])
    assert figure is not None
    assert [(line.label, line.xs, line.ys) for line in figure.plot.lines] == [
        ("rule accuracy", [0.01, 0.03, 0.02], [0.2] * 3),
        ("VerifyRM reward", [0.01, 0.03, 0.02], [0.4] * 3),
    ]
    assert (
        frontier_figure(
            [Arm("", [StepMetrics(step=1, rollout=RolloutMetrics(verify_rm_reward=0.5, rule_accuracy=0.5))])]
        )
        is None
    )


def test_steps_without_a_kl_are_not_at_the_start() -> None:
    figure = frontier_figure([Arm("", rows_with_kl([0.01, None, 0.02, 0.05], evaluated=(1, 2, 4)))])
    assert figure is not None
    assert [line.xs for line in figure.plot.lines] == [[0.01, 0.05]] * 2
    assert frontier_figure([Arm("", rows_with_kl([None] * 4, evaluated=(1, 2, 4)))]) is None


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_rollout_number_that_is_not_finite_is_in_no_figure(value: float) -> None:
    """JSON has no name for it: the page's script would end at such a figure, and with it filters and zoom."""
    for name in ("verify_rm_reward", "rule_accuracy"):
        rows = rows_with_kl([0.01, 0.03, 0.02])
        setattr(rows[1].rollout, name, value)
        for figure in training_figures([Arm("", rows)]):
            json.loads(figure.data, parse_constant=pytest.fail)
        frontier = frontier_figure([Arm("", rows)])
        assert frontier is not None
        assert [line.xs for line in frontier.plot.lines] == [[0.01, 0.02]] * 2


def test_the_start_is_at_no_distance_and_what_has_no_kl_is_left_out() -> None:
    points = [(0.0, 0.5), (1.0, 0.6), (2.0, 0.7), (3.0, 0.8)]
    assert along_kl(points, {1: 0.1, 2: math.inf}) == [(0.0, 0.5), (0.1, 0.6)]


def test_an_evaluation_whose_judge_was_away_is_no_point_of_the_judges_line() -> None:
    """Step 2 has the rule's .2 alone, which between .5 and .5 would look like a fall."""
    rows = rows_with_kl([0.01, 0.02, 0.03], evaluated=(1, 2, 3))
    rows[1].eval = rows[1].eval.model_copy(update={"judge_accuracy": None})
    for draw in (lambda arms: held_out_figure(arms), frontier_figure):
        figure = draw([Arm("", rows)])
        assert figure is not None
        lines = {line.label: line for line in figure.plot.lines}
        assert list(lines["accuracy"].ys) == [0.5, 0.5]
        assert list(lines["VerifyRM reward"].ys) == [0.7] * 3
