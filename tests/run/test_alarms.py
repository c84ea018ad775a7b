"""An alarm: what raises it, what it goes back to, and whether a judge may deny it."""

import logging
from collections.abc import Sequence

import pytest

from cooper_rl.checkpoints.run_state import RunState
from cooper_rl.config.cooper import MonitorConfig
from cooper_rl.config.load import load
from cooper_rl.method.intervals import clustered_interval
from cooper_rl.method.metrics import binary_scores
from cooper_rl.run.alarms import Alarm, ask_monitor, find_drop, rollback_steps
from cooper_rl.run.identity import conditions_sha256
from cooper_rl.schema.reports import EvalReport, ProblemScores
from cooper_rl.schema.step_metrics import MonitorMetrics, RolloutMetrics, StepMetrics

CONFIG = MonitorConfig(window=2, max_gap_rise=0.1)


def follow(rows: list[StepMetrics], run: RunState | None = None) -> tuple[RunState, list[Alarm | None]]:
    run, found = run or RunState(), []
    for row in rows:
        state, alarm = ask_monitor(CONFIG, run, row, key="cooper.monitor.action")
        run = run.after(row, state)
        found.append(alarm)
    return run, found


def steps(count: int, *, order: float | None, reward: float = 0.5, first: int = 1) -> list[StepMetrics]:
    return [
        StepMetrics(
            step=step, rollout=RolloutMetrics(verify_rm_reward=reward, rule_accuracy=0.5, order=order)
        )
        for step in range(first, first + count)
    ]


def test_a_reward_that_tells_nothing_raises_one_alarm_that_no_judge_can_deny(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    rows = steps(5, order=0.95) + steps(40, order=0.5, first=6)
    run, found = follow(rows)
    (alarm,) = [each for each in found if each is not None]
    step = found.index(alarm) + 1
    assert alarm == Alarm(since_step=5, is_deniable=False)
    assert run.first_alarm_step == step
    assert step in range(15, 40)
    assert [row.monitor.unordered for row in rows[step - 2 : step]] == [None, True]
    assert [row.monitor.alarm for row in rows[step - 2 : step]] == [False, True]
    assert len(caplog.messages) == 1
    assert f"step {step}: since step 6 the reward puts right completions above" in caplog.messages[0]


def test_a_rise_of_the_reward_may_be_denied() -> None:
    _, found = follow(steps(2, order=None) + steps(2, order=None, reward=0.8, first=3))
    assert found == [None, None, None, Alarm(since_step=2, is_deniable=True)]


def test_a_denied_alarm_takes_no_evidence_away() -> None:
    run, _ = follow(steps(8, order=0.5))
    denied = steps(1, order=0.5, first=9)
    denied[0].monitor.denied = True
    state, _ = ask_monitor(CONFIG, run, denied[0], key="")
    denied[0].monitor.denied = True
    after = run.after(denied[0], state)
    assert (after.monitor.points, after.monitor.order) == ((), state.order)


def test_the_checkpoint_before_the_reward_went_wrong_is_kept() -> None:
    run, _ = follow(steps(8, order=0.95) + steps(6, order=0.5, first=9))
    back = "cooper.monitor={ window = 2, action = 'rollback' }"
    assert run.monitor.order.since_step == 9
    every, third = (load("laptop", [back, f"cooper.checkpoint_every={number}"]) for number in (1, 3))
    assert set(rollback_steps(every, run, step=14)) >= {8, 12, 13, 14}
    assert {6, 12} <= set(rollback_steps(third, run, step=14)) <= {0, 3, 6, 9, 12}, "what every run keeps"


def report(by_problem: Sequence[float]) -> EvalReport:
    """An evaluation in which the judge found these accuracies."""
    return EvalReport(
        step=80,
        num_problems=len(by_problem),
        samples_per_problem=4,
        rule_accuracy=clustered_interval([[each] for each in by_problem]),
        judge_accuracy=clustered_interval([[each] for each in by_problem]),
        judge_model="exact",
        verify_rm_reward=clustered_interval([[0.5]]),
        verify_rm=binary_scores([0, 1], [0.2, 0.8]),
        by_problem=[
            ProblemScores(id=str(place), rule_accuracy=each, judge_accuracy=each, verify_rm_reward=0.5)
            for place, each in enumerate(by_problem)
        ],
        cut_fraction=0.0,
    )


BEST = [1.0, 1.0, 0.75, 0.5, 0.25] * 40
"""200 problems, accuracy .7."""


def after_best(*, lost: int, found: int = 0) -> list[float]:
    """The best evaluation less a quarter on this many problems, and a quarter more on others."""
    return [
        each + 0.25 * ((place % 5 == 4 and place < 5 * found) - (place % 5 == 0 and place < 5 * lost))
        for place, each in enumerate(BEST)
    ]


@pytest.mark.parametrize(
    ("lost", "found", "allowed", "is_alarm"),
    [
        (40, 0, 0.02, True),
        (24, 0, 0.02, False),  # 3 points: by chance, perhaps
        (24, 0, 0.01, True),
        (40, 20, 0.02, False),
        (40, 0, None, False),
        (0, 40, 0.0, False),
    ],
)
def test_accuracy_below_its_best_is_an_alarm_when_chance_and_the_allowance_are_left_out(
    lost: int, found: int, allowed: float | None, is_alarm: bool
) -> None:
    config = MonitorConfig(max_judged_drop=allowed)
    run = RunState(best_judged=0.7, best_judged_step=40, best_by_problem=tuple(BEST))
    row = steps(1, order=None, first=80)[0]
    alarm = find_drop(config, run, row, report(after_best(lost=lost, found=found)))
    assert alarm == (Alarm(since_step=40, is_deniable=False) if is_alarm else None)
    assert (row.monitor.alarm, row.monitor.dropped) == ((True, True) if is_alarm else (None, None))


def test_nothing_drops_without_a_best_a_judge_a_monitor_or_after_an_alarm() -> None:
    (row,) = steps(1, order=None, first=80)
    best = RunState(best_judged=0.7, best_judged_step=40, best_by_problem=tuple(BEST))
    hacked = best.model_copy(update={"first_alarm_step": 50})
    low = report([0.1] * len(BEST))
    assert find_drop(CONFIG, best, row, low) is not None
    row.monitor = MonitorMetrics()
    assert find_drop(CONFIG, RunState(), row, low) is None
    assert find_drop(CONFIG, RunState(best_judged=0.7), row, low) is None, "an earlier version's best"
    assert find_drop(CONFIG, best, row, low.model_copy(update={"judge_accuracy": None})) is None
    assert find_drop(None, best, row, low) is None
    assert find_drop(CONFIG, hacked, row, low) is None
    assert row.monitor.alarm is None


def test_an_evaluation_under_other_settings_is_no_measure() -> None:
    run = RunState(best_judged=0.7, best_judged_step=20, best_by_problem=(0.6, 0.8))
    run = run.evaluating_under("a").evaluating_under("a")
    assert (run.best_judged, run.best_judged_step) == (0.7, 20)
    run = run.evaluating_under("b")
    assert (run.best_judged, run.best_judged_step, run.evaluated_under) == (None, None, "b")
    assert run.best_by_problem == ()
    laptop = conditions_sha256(load("laptop"))
    assert conditions_sha256(load("laptop", ["cooper.steps=3"])) == laptop
    assert conditions_sha256(load("laptop", ["evaluation.max_problems=40"])) != laptop


def test_the_best_evaluation_is_remembered_with_its_step_and_kept_for_a_rollback() -> None:
    run = RunState()
    for step, accuracy in ((10, 0.4), (20, 0.6), (30, 0.5)):
        (row,) = steps(1, order=None, first=step)
        row.eval.judge_accuracy = accuracy
        run = run.after(row, run.monitor, (accuracy, accuracy))
    assert (run.best_judged, run.best_judged_step, run.best_by_problem) == (0.6, 20, (0.6, 0.6))
    config = load("laptop", ["cooper.monitor.action=rollback"])
    assert 20 in rollback_steps(config, run, step=60)
