"""verifiers 0.4 and prime-rl: rewards that learn; docs/how-to/trainers/verifiers.md."""

import asyncio
from functools import cache
from typing import Any

import verifiers.v1 as vf  # pyright: ignore[reportMissingImports] the trainer brings it

from cooper_rl import RewardClient

connect = cache(RewardClient.from_environment)


class CooperReward:
    """Base of a task whose data has an `answer`: `class MyTask(CooperReward, vf.Task[...])`."""

    @vf.reward
    async def cooper(self, task: Any, trace: Any) -> float:
        """The reward of a rollout; VerifyRM learns when the server has a step's rollouts together."""
        is_text = isinstance(task.prompt, str)
        (reward,) = await asyncio.to_thread(
            connect(),
            [trace.last_reply],
            prompts=[task.prompt if is_text else [each.model_dump() for each in task.prompt or ()]],
            reference_answers=[task.answer],
            learn="later",
        )
        return reward
