"""veRL 0.9 (`reward.custom_reward_function`): rewards from `cooper-rl serve --learn`;
docs/how-to/trainers/verl.md."""

from functools import cache
from typing import Any

from cooper_rl import CooperError, RewardClient

connect = cache(RewardClient.from_environment)


def compute_score(
    data_source: str, solution_str: str, ground_truth: str, extra_info: dict[str, Any] | None = None, **_: Any
) -> float:
    """The reward of one completion; VerifyRM learns when the server has a step's completions together."""
    facts = extra_info or {}
    if "question" not in facts:
        raise CooperError(
            f"{data_source}: no extra_info.question; write the question there when preparing the data"
        )
    (reward,) = connect()(
        [solution_str],
        questions=[facts["question"]],
        reference_answers=[ground_truth],
        learn="later" if facts.get("split", "train") == "train" else "never",
    )
    return reward
