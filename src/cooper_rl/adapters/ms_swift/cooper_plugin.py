"""ms-swift 4.6 (`--external_plugins`): rewards that learn; docs/how-to/trainers/ms_swift.md."""

from functools import cache
from typing import Any

from swift.rewards import ORM, orms  # pyright: ignore[reportMissingImports] the trainer brings it

from cooper_rl import CooperError, RewardClient

connect = cache(RewardClient.from_environment)


class CooperORM(ORM):
    """`--reward_funcs cooper`, with a data set column `solution`."""

    def __call__(self, completions: list[str], **columns: Any) -> list[float]:
        """Rewards of this process's completions; VerifyRM learns when the server has a step's together."""
        if "solution" not in columns:
            raise CooperError("the data set has no column 'solution'; rename that of the final answers")
        return connect()(
            completions,
            prompts=columns["messages"],
            reference_answers=columns["solution"],
            learn="later",
        )


orms["cooper"] = CooperORM
