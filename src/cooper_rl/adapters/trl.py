"""TRL 1.16 (`reward_funcs`): rewards from `cooper-rl serve --learn`; docs/how-to/trainers/trl.md."""

from functools import cache
from typing import Any

from cooper_rl import CooperError, RewardClient
from cooper_rl.api.trl import find_cut

connect = cache(RewardClient.from_environment)


def cooper_reward(
    prompts: list[Any], completions: list[Any], log_metric: Any = None, **columns: Any
) -> list[float | None]:
    """Rewards of this process's completions; VerifyRM learns from those of all processes at once."""
    if "reference_answer" not in columns:
        raise CooperError("the data set has no column 'reference_answer'; rename that of the final answers")
    # GRPOTrainer and RLOOTrainer pass a method of theirs; AsyncGRPOTrainer asks for one group at a time.
    trainer = getattr(log_metric, "__self__", None)
    is_alone = trainer is not None and trainer.accelerator.num_processes == 1
    is_evaluating = trainer is not None and not trainer.model.training
    are_cut = find_cut(trainer, columns.get("completion_ids"))
    # A row without a reference answer is of another task: TRL leaves out a reward that is None.
    rows = [row for row, answer in enumerate(columns["reference_answer"]) if answer is not None]
    rewards = connect()(
        [completions[row] for row in rows],
        prompts=[prompts[row] for row in rows],
        questions=[columns["question"][row] for row in rows] if "question" in columns else None,
        reference_answers=[columns["reference_answer"][row] for row in rows],
        are_cut=None if are_cut is None else [are_cut[row] for row in rows],
        learn="never" if is_evaluating else "now" if is_alone else "later",
    )
    return [None if answer is None else rewards.pop(0) for answer in columns["reference_answer"]]
