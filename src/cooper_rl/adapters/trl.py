"""TRL 1.16 (`reward_funcs`): rewards from `cooper-rl serve --learn`; docs/how-to/trainers/trl.md."""

from functools import cache
from typing import Any

from cooper_rl import CooperError, RewardClient

connect = cache(RewardClient.from_environment)


def cooper_reward(prompts: list[Any], completions: list[Any], log_metric: Any, **columns: Any) -> list[float]:
    """Rewards of this process's completions; VerifyRM learns from those of all processes at once."""
    if "reference_answer" not in columns:
        raise CooperError("the data set has no column 'reference_answer'; rename that of the final answers")
    trainer = log_metric.__self__
    is_alone = trainer.accelerator.num_processes == 1
    return connect()(
        completions,
        prompts=prompts,
        questions=columns.get("question"),
        reference_answers=columns["reference_answer"],
        learn="never" if not trainer.model.training else "now" if is_alone else "later",
    )
