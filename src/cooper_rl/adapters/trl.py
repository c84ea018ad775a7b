"""TRL 1.16 (`reward_funcs`): rewards from `cooper-rl serve --learn`; docs/how-to/trainers/trl.md."""

from functools import cache
from typing import Any

from cooper_rl import CooperError, RewardClient

connect = cache(RewardClient.from_environment)


def cooper_reward(
    prompts: list[Any], completions: list[Any], log_metric: Any = None, **columns: Any
) -> list[float]:
    """Rewards of this process's completions; VerifyRM learns from those of all processes at once."""
    if "reference_answer" not in columns:
        raise CooperError("the data set has no column 'reference_answer'; rename that of the final answers")
    # GRPOTrainer and RLOOTrainer pass a method of theirs; AsyncGRPOTrainer asks for one group at a time.
    trainer = getattr(log_metric, "__self__", None)
    is_alone = trainer is not None and trainer.accelerator.num_processes == 1
    is_evaluating = trainer is not None and not trainer.model.training
    return connect()(
        completions,
        prompts=prompts,
        questions=columns.get("question"),
        reference_answers=columns["reference_answer"],
        learn="never" if is_evaluating else "now" if is_alone else "later",
    )
