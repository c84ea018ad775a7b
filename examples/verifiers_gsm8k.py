"""A taskset of verifiers 0.4 on GSM8K, with a reward that learns; prime-rl trains with it.

    cooper-rl serve --learn --verify-rm verify_rm --state runs/rewards --set collect_items=512
    export COOPER_REWARD_URL=http://127.0.0.1:8080 COOPER_REWARD_RUN=prime PYTHONPATH=examples
    rl @ examples/verifiers_gsm8k.toml

`collect_items` is the number of rollouts of a training step.
"""

import verifiers.v1 as vf
from datasets import load_dataset

from cooper_rl.adapters.vf import CooperReward

__all__ = ["GSM8K"]


class Problem(vf.TaskData):
    """A question, which is the prompt, and its reference answer."""

    answer: str


class Solve(CooperReward, vf.Task[Problem]):
    """One completion, scored by the service."""

    @vf.stop
    async def single_turn(self, trace: vf.Trace) -> bool:
        """True after the first reply."""
        return trace.num_turns >= 1


class GSM8K(vf.Taskset[Solve, vf.TasksetConfig]):
    """The problems of GSM8K, whose reference answers stand behind `####`."""

    def load(self) -> list[Solve]:
        """All training problems."""
        rows = load_dataset("openai/gsm8k", "main", split="train")
        return [self.make_task(index, row) for index, row in enumerate(rows)]

    def make_task(self, index: int, row: dict[str, str]) -> Solve:
        """A row of the data set as a task."""
        answer = row["answer"].rpartition("####")[2].strip()
        return Solve(Problem(idx=index, prompt=row["question"], answer=answer), self.config.task)
