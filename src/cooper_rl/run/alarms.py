"""What an alarm of the hacking monitor does to a run (row 14): end it, or fall back to the rule reward.

Going back to an earlier checkpoint is `CoTraining._roll_back`'s, which has the models.
"""

from cooper_rl.checkpoints.run_state import RunState
from cooper_rl.config.root import Config
from cooper_rl.errors import HackingError


def has_fallen_back(config: Config, run: RunState) -> bool:
    """Whether the reward is the rule verdict from here on."""
    monitor = config.cooper.active_monitor
    return monitor is not None and monitor.action in ("rule", "rollback") and run.is_hacked


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
