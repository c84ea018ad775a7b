"""TRL round `CooperReward`: which of its calls train, and checkpoints beside the policy's.

TRL (1.16) tells a reward function nothing of training or evaluation, but passes `log_metric`, a method of the
trainer that calls. From it come the mode, the place of checkpoints, and which completions were cut.
"""

import logging
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cooper_rl.errors import ConfigError, DataError
from cooper_rl.schema.step_metrics import StepMetrics

if TYPE_CHECKING:
    from cooper_rl.api.reward import CooperReward

logger = logging.getLogger(__name__)

FOLDER = "cooper_reward"
"""Inside `checkpoint-N` of the trainer's output folder."""
SHOWN: dict[str, Callable[[StepMetrics], float | None]] = {
    "cooper/rollout_rule_accuracy": lambda row: row.rollout.rule_accuracy,
    "cooper/rollout_rule_unparsable": lambda row: row.rollout.rule_unparsable,
    "cooper/pairs_count": lambda row: row.pairs.count,
    "cooper/verify_rm_pair_accuracy": lambda row: row.verify_rm.pair_accuracy,
    "cooper/gate_rolled_back": lambda row: row.gate.rolled_back,
    "cooper/monitor_alarm": lambda row: row.monitor.alarm,
}
"""Metrics that TRL logs beside its own."""


def trainer_of(log_metric: Any) -> Any | None:
    """The trainer that calls the reward; None: called by other code."""
    trainer = getattr(log_metric, "__self__", None)
    return trainer if hasattr(trainer, "add_callback") and hasattr(trainer, "model") else None


def find_cut(trainer: Any | None, completion_ids: Sequence[Sequence[int]] | None) -> list[bool] | None:
    """True for each completion that reached the trainer's limit without an end token; None: not known."""
    ends, limit = (getattr(trainer, name, None) for name in ("eos_token_ids", "max_completion_length"))
    if completion_ids is None or ends is None or limit is None:
        return None
    return [len(ids) >= limit and ids[-1] not in ends for ids in completion_ids]


def follow(reward: "CooperReward", trainer: Any, *, has_folder: bool, begin: Callable[[], None]) -> None:
    """Save the reward with every checkpoint of this trainer, and call `begin` whenever training begins.

    Raises:
        ConfigError: the reward has a folder of its own, which would not go back with the trainer; or the
            trainer has another `CooperReward`.
    """
    if has_folder:
        raise ConfigError(
            "CooperReward(folder=...) under TRL: its state is kept in the trainer's own checkpoints "
            f"(output_dir/checkpoint-N/{FOLDER}); leave folder out"
        )
    callbacks = trainer.callback_handler.callbacks
    if any(getattr(each, "cooper_reward", reward) is not reward for each in callbacks):
        raise ConfigError(
            "reward_funcs: holds two CooperReward, and the trainer's checkpoints have a place for one "
            f"({FOLDER}); leave one out"
        )
    from transformers import TrainerCallback

    class SavesReward(TrainerCallback):
        """Writes the reward's state into the checkpoint that was just written, and hears of resuming."""

        cooper_reward = reward

        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            begin()

        def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.is_world_process_zero:
                _save(reward, _place(args, state))

    trainer.add_callback(SavesReward())


def _save(reward: "CooperReward", place: Path) -> None:
    try:
        reward.save(place)
    except ConfigError as error:
        # The trainer has just written its checkpoint over one of an earlier run: that run's reward belongs to
        # no policy any more, and to end here would lose this training.
        logger.warning("cooper_reward: replaces the state of an earlier run: %s", error)
        shutil.rmtree(place)
        reward.save(place)


def resume(reward: "CooperReward", trainer: Any) -> None:
    """Load the reward's state from the trainer's checkpoint if the trainer resumed; on the first process.

    Raises:
        DataError: the checkpoint holds no state of the reward.
    """
    if not trainer.state.global_step:
        return
    place = _place(trainer.args, trainer.state)
    if not reward.load(place):
        raise DataError(
            f"{place}: the trainer resumed at step {trainer.state.global_step}, and this folder holds no "
            "state of CooperReward; resume from a checkpoint in output_dir that was trained with it"
        )


def log(log_metric: Any, metrics: StepMetrics) -> None:
    """Some of a step's metrics for the trainer's own log."""
    for name, read in SHOWN.items():
        value = read(metrics)
        if value is not None:
            log_metric(name, float(value))


def _place(args: Any, state: Any) -> Path:
    return Path(args.output_dir) / f"checkpoint-{state.global_step}" / FOLDER
