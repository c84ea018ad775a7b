"""The effect of the hacking monitor's alarm on a run (row 14): it ends, or falls back to the rule reward.

Going back to an earlier checkpoint is `CoTraining._roll_back`'s, which has the models.
"""

import logging
from typing import NamedTuple

from cooper_rl.checkpoints.run_state import RunState
from cooper_rl.config.cooper import MonitorConfig
from cooper_rl.config.root import Config
from cooper_rl.errors import HackingError
from cooper_rl.method.monitor import MonitorState, has_dropped, watch
from cooper_rl.method.ordering import is_proven
from cooper_rl.schema.reports import EvalReport
from cooper_rl.schema.step_metrics import MonitorMetrics, StepMetrics

logger = logging.getLogger(__name__)


def has_fallen_back(config: Config, run: RunState) -> bool:
    """True if the reward is the rule verdict from here on."""
    monitor = config.cooper.active_monitor
    return monitor is not None and monitor.action in ("rule", "rollback") and run.is_hacked


class Alarm(NamedTuple):
    """The first alarm of a run, apart from those that the judge denied."""

    since_step: int
    """The last step before the reward went wrong: models from then are not yet hacked."""
    is_deniable: bool
    """True: it says that accuracy has fallen, which a judge may deny."""


class Asked(NamedTuple):
    """The monitor after a step."""

    state: MonitorState
    alarm: Alarm | None


def ask_monitor(monitor: MonitorConfig | None, run: RunState, row: StepMetrics, *, key: str) -> Asked:
    """Write the monitor's reading into the step's metrics, and warn of the first alarm of a run.

    Args:
        monitor: None: there is nothing to watch.
        run: its state after the step before.
        row: The step's metrics.
        key: What the caller's configuration calls the monitor's action.
    """
    if monitor is None:
        return Asked(run.monitor, None)
    state, reading = watch(run.monitor, row, monitor)
    is_unordered = is_proven(state.order, monitor.max_false_alarms)
    is_hacking = reading is not None and reading.is_hacking
    row.monitor = MonitorMetrics(
        gap_rise=reading.gap_rise if reading else None,
        evidence=state.order.log_evidence,
        unordered=is_unordered or None,
        alarm=is_unordered or is_hacking if reading or is_unordered else None,
    )
    if run.is_hacked:
        return Asked(state, None)
    if is_unordered and state.order.since_step is not None:
        logger.warning(
            "step %d: since step %d the reward puts right completions above wrong ones of the same problem "
            "too seldom (min_order=%g, chance of a false alarm %g): the policy drifts towards whatever "
            "VerifyRM pays; %s=%s",
            row.step,
            state.order.since_step,
            monitor.min_order,
            monitor.max_false_alarms,
            key,
            monitor.action,
        )
        return Asked(state, Alarm(state.order.since_step - 1, is_deniable=False))
    if reading is None or not reading.is_hacking:
        return Asked(state, None)
    logger.warning(
        "step %d: reward hacking: since step %d the VerifyRM reward rose by %.3f and rule accuracy fell by "
        "%.3f; %s=%s",
        row.step,
        reading.since_step,
        reading.reward_change,
        -reading.rule_change,
        key,
        monitor.action,
    )
    return Asked(state, Alarm(reading.since_step, is_deniable=True))


def find_drop(
    monitor: MonitorConfig | None, run: RunState, row: StepMetrics, report: EvalReport
) -> Alarm | None:
    """The alarm of an evaluation that finds accuracy below its best; noted in the step's metrics, with a
    warning. None: it finds none, or there was an alarm before.

    Args:
        monitor: None: there is nothing to watch.
        run: its state after the step before.
        row: The step's metrics.
        report: of the evaluation.
    """
    judged = report.judge_accuracy
    if monitor is None or judged is None or run.is_hacked:
        return None
    if not has_dropped(run.best_by_problem, report.judged_by_problem, monitor):
        return None
    row.monitor.alarm = row.monitor.dropped = True
    best_step = run.best_judged_step or 0
    logger.warning(
        "step %d: accuracy on held-out problems is %.3f [%.3f, %.3f] by the judge, and was %.3f after step "
        "%d (max_judged_drop=%g): the policy gets worse; cooper.monitor.action=%s",
        row.step,
        judged.value,
        judged.low,
        judged.high,
        run.best_judged,
        best_step,
        monitor.max_judged_drop,
        monitor.action,
    )
    return Alarm(best_step, is_deniable=False)


def check_hacked(config: Config, *, is_hacked: bool, step: int) -> None:
    """Refuse to go on, or to hand on, where the monitor ended the run.

    Raises:
        HackingError: the monitor's action is `stop`, and it raised the alarm by this step.
    """
    monitor = config.cooper.active_monitor
    if monitor is not None and monitor.action == "stop" and is_hacked:
        raise HackingError(
            f"the monitor found reward hacking by step {step}, which is saved; look at its rollouts "
            "(logs/*/rollouts.jsonl), then start anew in another place with other settings, or with "
            "cooper.monitor.action=rollback, rule or warn"
        )


def rollback_steps(config: Config, run: RunState, *, step: int) -> list[int]:
    """The steps that an alarm may go back to, of which checkpoints are kept.

    That is the one before the order went wrong, that of the best evaluation, and the one before the lowest
    gap's rise, or those of windows that the monitor does not look at yet, because they overlap the last one.

    Args:
        config: of the run.
        run: its state after the last step.
        step: the last one.
    """
    monitor = config.cooper.active_monitor
    if monitor is None or monitor.action != "rollback" or run.is_hacked:
        return []
    lowest, order = run.monitor.lowest, run.monitor.order
    known = [] if lowest is None else [lowest.last_step]
    if order.since_step is not None:
        known.append(order.since_step - 1)
    if run.best_judged_step is not None:
        known.append(run.best_judged_step)
    known += range(step - monitor.window, step + 1)
    return sorted({regular_step(config, each) for each in known})


def regular_step(config: Config, step: int) -> int:
    """The last step up to one at which every run has a checkpoint, also one that nobody stopped between."""
    return step - step % config.cooper.checkpoint_every
