"""The effect of the hacking monitor's alarm on a run (row 14): it ends, or falls back to the rule reward.

Going back to an earlier checkpoint is `CoTraining._roll_back`'s, which has the models.
"""

import logging

from cooper_rl.checkpoints.run_state import RunState
from cooper_rl.config.cooper import MonitorConfig
from cooper_rl.config.root import Config
from cooper_rl.errors import HackingError
from cooper_rl.method.monitor import Watched, watch
from cooper_rl.schema.step_metrics import MonitorMetrics, StepMetrics

logger = logging.getLogger(__name__)


def has_fallen_back(config: Config, run: RunState) -> bool:
    """True if the reward is the rule verdict from here on."""
    monitor = config.cooper.active_monitor
    return monitor is not None and monitor.action in ("rule", "rollback") and run.is_hacked


def ask_monitor(monitor: MonitorConfig | None, run: RunState, row: StepMetrics, *, key: str) -> Watched:
    """Write the monitor's reading into the step's metrics, and warn of the first alarm of a run.

    Args:
        monitor: None: there is nothing to watch.
        run: its state after the step before.
        row: The step's metrics.
        key: What the caller's configuration calls the monitor's action.

    Returns:
        The monitor's new state, and its reading where this is the first alarm apart from those denied.
    """
    if monitor is None:
        return Watched(run.monitor, None)
    state, reading = watch(run.monitor, row, monitor)
    if reading is None:
        return Watched(state, None)
    row.monitor = MonitorMetrics(gap_rise=reading.gap_rise, alarm=reading.is_hacking)
    if not reading.is_hacking or run.is_hacked:
        return Watched(state, None)
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
    return Watched(state, reading)


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

    That is the one before the lowest gap's rise, or those of windows that the monitor does not look at yet,
    because they overlap the last one.

    Args:
        config: of the run.
        run: its state after the last step.
        step: the last one.
    """
    monitor = config.cooper.active_monitor
    if monitor is None or monitor.action != "rollback" or run.is_hacked:
        return []
    lowest = run.monitor.lowest
    known = [] if lowest is None else [lowest.last_step]
    return [*known, *range(step - monitor.window, step + 1)]
