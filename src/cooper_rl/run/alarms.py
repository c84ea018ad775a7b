"""What an alarm of the hacking monitor does to a run (row 14): end it, or fall back to the rule reward.

Going back to an earlier checkpoint is `CoTraining._roll_back`'s, which has the models.
"""

from collections.abc import Sequence

from cooper_rl.config.root import Config
from cooper_rl.errors import HackingError
from cooper_rl.method.monitor import first_alarm
from cooper_rl.schema.step_metrics import StepMetrics


def is_hacked(metrics: Sequence[StepMetrics]) -> bool:
    """Whether the monitor has raised an alarm that no judge denied."""
    return first_alarm(metrics) is not None


def has_fallen_back(config: Config, metrics: Sequence[StepMetrics]) -> bool:
    """Whether the reward is the rule verdict from here on."""
    monitor = config.cooper.active_monitor
    return monitor is not None and monitor.action in ("rule", "rollback") and is_hacked(metrics)


def check_hacked(config: Config, metrics: Sequence[StepMetrics]) -> None:
    """Refuse to go on, or to hand on, where the monitor ended the run.

    Raises:
        HackingError: the monitor's action is `stop`, and it raised the alarm.
    """
    monitor = config.cooper.active_monitor
    if monitor is not None and monitor.action == "stop" and is_hacked(metrics):
        raise HackingError(
            f"the monitor found reward hacking by step {metrics[-1].step}, which is saved; look at "
            "its rollouts (rollouts.jsonl), then start anew in another place with other settings, or with "
            "cooper.monitor.action=rollback, rule or warn"
        )


def rollback_steps(
    config: Config, metrics: Sequence[StepMetrics], *, step: int, calm_until: int | None
) -> list[int]:
    """The steps that an alarm may go back to, of which checkpoints are kept.

    That is the one before the lowest gap's rise, or those of windows that the monitor does not look at yet,
    because they overlap the last one.

    Args:
        config: of the run.
        metrics: one entry per step.
        step: the last one.
        calm_until: last step before the rise that the monitor sees; None: it sees nothing yet.
    """
    monitor = config.cooper.active_monitor
    if monitor is None or monitor.action != "rollback" or is_hacked(metrics):
        return []
    known = [] if calm_until is None else [calm_until]
    return [*known, *range(step - monitor.window, step + 1)]
