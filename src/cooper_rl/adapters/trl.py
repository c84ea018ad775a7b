"""TRL 1.16 (`reward_funcs`): rewards from `cooper-rl serve --learn`; docs/how-to/trainers/trl.md."""

from functools import cache
from typing import Any

from cooper_rl import RewardClient

connect = cache(RewardClient.from_environment)


def cooper_reward(
    prompts: list[Any], completions: list[Any], reference_answer: list[str], log_metric: Any, **columns: Any
) -> list[float]:
    """Rewards of this process's completions; VerifyRM learns from those of all processes at once."""
    trainer = log_metric.__self__
    is_alone = trainer.accelerator.num_processes == 1
    return connect()(
        [_last_text(completion, "assistant") for completion in completions],
        questions=columns.get("question") or [_last_text(prompt, "user") for prompt in prompts],
        reference_answers=reference_answer,
        learn="never" if not trainer.model.training else "now" if is_alone else "later",
    )


def _last_text(value: Any, role: str) -> str:
    """A plain text, or the last chat message of a role."""
    return value if isinstance(value, str) else [m["content"] for m in value if m["role"] == role][-1]
