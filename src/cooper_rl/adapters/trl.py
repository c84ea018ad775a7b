"""TRL 1.16 (`reward_funcs`): rewards from `cooper-rl serve --learn`; docs/how-to/trainers/trl.md."""

from functools import cache
from typing import Any

from cooper_rl import CooperError, RewardClient
from cooper_rl.api.trl import find_cut, trainer_of

connect = cache(RewardClient.from_environment)


def cooper_reward(
    prompts: list[Any], completions: list[Any], log_metric: Any = None, **columns: Any
) -> list[float | None]:
    """Rewards of this process's completions; VerifyRM learns from those of all processes at once."""
    if "reference_answer" not in columns:
        raise CooperError("the data set has no column 'reference_answer'; rename that of the final answers")
    # GRPOTrainer and RLOOTrainer pass a method of theirs; AsyncGRPOTrainer asks for one group at a time.
    trainer = trainer_of(log_metric)
    is_alone = trainer is not None and trainer.accelerator.num_processes == 1
    is_evaluating = trainer is not None and not trainer.model.training
    answers, are_cut = columns["reference_answer"], find_cut(trainer, columns.get("completion_ids"))
    given = {"completions": completions, "prompts": prompts, "questions": columns.get("question"),
             "reference_answers": answers, "are_cut": are_cut}  # fmt: skip
    # A row without a reference answer is of another task: TRL leaves out a reward that is None.
    rows = [row for row, answer in enumerate(answers) if answer is not None]
    asked: dict[str, Any] = {name: [of[row] for row in rows] for name, of in given.items() if of is not None}
    rewards = connect()(**asked, learn="never" if is_evaluating else "now" if is_alone else "later")
    return [None if answer is None else rewards.pop(0) for answer in answers]
