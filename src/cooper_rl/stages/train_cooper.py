"""Stage: one iteration of co-training, many steps long (rows 6 to 13). The step is `training/step.py`.

A run that was stopped continues from its own checkpoint folder when it is started again.
"""

import logging
import time
from pathlib import Path
from typing import Annotated

from cooper_rl.backends.checkpoint import (
    TrainingState,
    latest_checkpoint,
    load_checkpoint,
    require_checkpoint,
    save_checkpoint,
    verify_checkpoint,
)
from cooper_rl.backends.device import pick_device
from cooper_rl.backends.engine_hf import HFEngine
from cooper_rl.backends.policy import load_policy
from cooper_rl.backends.rule_verifier import RuleVerifier
from cooper_rl.backends.verify_rm import load_verify_rm
from cooper_rl.config import Config
from cooper_rl.progress import Progress
from cooper_rl.records import check_unique, read_records, write_report
from cooper_rl.schema import CooperReport, Problem
from cooper_rl.stages._models import read_models
from cooper_rl.stages._wiring import open_assistant
from cooper_rl.training.optimizer import make_adamw, optimizer_tensors, restore_optimizer
from cooper_rl.training.step import Trainer, run_step, step_problems

logger = logging.getLogger(__name__)


def run(
    config: Config,
    *,
    models: Annotated[Path, "Folder of prepare_models: the starting policy, also the KL reference"],
    verify_rm: Annotated[Path, "Folder of train_verify_rm"],
    problems: Annotated[Path, "Problems to train on (JSONL or Parquet)"],
    checkpoint: Annotated[Path, "Folder for checkpoints; an unfinished iteration in it is continued"],
    report: Annotated[Path, "Where to write the report (JSON)"],
    start: Annotated[Path | None, "Checkpoint folder of the previous iteration; absent: start anew"] = None,
) -> CooperReport:
    """Train policy and VerifyRM together for `cooper.steps` steps.

    Raises:
        DataError: no problems, duplicate ids, or a damaged checkpoint.
        ModelError: a model cannot be used.
        TrainingError: a score, loss or gradient is not finite; the last checkpoint stays.
    """
    started = time.monotonic()
    rows = read_records(problems, Problem)
    check_unique(rows, field="id", path=problems)

    state = _starting_state(models=models, verify_rm=verify_rm, start=start, checkpoint=checkpoint)
    first_step = _first_step(start)
    last_step = first_step + config.cooper.steps - 1
    progress = Progress("train_cooper", last_step - state.step, logger)
    with RuleVerifier(config.labeling.rule) as rule:
        trainer = _make_trainer(config, state, models=models, rule=rule, place=str(start or verify_rm))
        for step in range(state.step + 1, last_step + 1):
            batch = step_problems(rows, step, count=config.cooper.problems_per_step, seed=config.seed)
            result = run_step(trainer, step, batch)
            state.step = step
            state.metrics.append(result.metrics)
            state.pairs.extend(result.pairs)
            if step % config.cooper.checkpoint_every == 0 or step == last_step:
                _take_optimizers(state, trainer)
                save_checkpoint(checkpoint, state, seed=config.seed)
            progress.advance(
                step=step,
                reward=result.metrics["rollout/verify_rm_reward"],
                rule=result.metrics["rollout/rule_accuracy"],
                pairs=len(result.pairs),
            )
    result = _summarise(state, first_step=first_step, seconds=time.monotonic() - started)
    write_report(report, result)
    return result


def _first_step(start: Path | None) -> int:

    return 1 if start is None else verify_checkpoint(require_checkpoint(start)).step + 1


def _starting_state(*, models: Path, verify_rm: Path, start: Path | None, checkpoint: Path) -> TrainingState:
    """Own unfinished checkpoint, else the previous iteration's, else the starting models."""

    device = pick_device()
    found = latest_checkpoint(checkpoint)
    if found is None and start is not None:
        found = require_checkpoint(start)
    if found is not None:
        logger.info("continue from %s", found)
        return load_checkpoint(found, device=device)
    return TrainingState(
        step=0,
        policy=load_policy(read_models(models).policy, device=device),
        verify_rm=load_verify_rm(verify_rm, device=device),
        policy_optimizer={},
        verify_rm_optimizer={},
        metrics=[],
        pairs=[],
    )


def _make_trainer(
    config: Config, state: TrainingState, *, models: Path, rule: RuleVerifier, place: str
) -> Trainer:

    cooper = config.cooper
    policy, verify_rm = state.policy, state.verify_rm
    policy_optimizer = make_adamw(policy.model, lr=cooper.policy_lr, weight_decay=cooper.policy_weight_decay)
    verify_rm_optimizer = make_adamw(
        verify_rm.model, lr=cooper.verify_rm_lr, weight_decay=cooper.verify_rm_weight_decay
    )
    restore_optimizer(policy.model, policy_optimizer, state.policy_optimizer, place=place)
    restore_optimizer(verify_rm.model, verify_rm_optimizer, state.verify_rm_optimizer, place=place)
    is_updated = cooper.reward == "verify_rm" and cooper.update_verify_rm
    return Trainer(
        policy=policy,
        reference=load_policy(read_models(models).policy, device=policy.device, is_trained=False),
        verify_rm=verify_rm,
        engine=HFEngine(policy.model, end_ids=policy.end_ids, pad_id=policy.pad_id),
        rule=rule,
        assistant=open_assistant(cooper.assistant) if is_updated and cooper.assistant else None,
        policy_optimizer=policy_optimizer,
        verify_rm_optimizer=verify_rm_optimizer,
        config=cooper,
        instruction=config.instruction,
        seed=config.seed,
    )


def _take_optimizers(state: TrainingState, trainer: Trainer) -> None:

    state.policy_optimizer = optimizer_tensors(trainer.policy.model, trainer.policy_optimizer)
    state.verify_rm_optimizer = optimizer_tensors(trainer.verify_rm.model, trainer.verify_rm_optimizer)


def _summarise(state: TrainingState, *, first_step: int, seconds: float) -> CooperReport:
    own = [row for row in state.metrics if row["step"] >= first_step]
    tail = own[-max(1, len(own) // 10) :]
    return CooperReport(
        first_step=first_step,
        last_step=state.step,
        verify_rm_reward=sum(row["rollout/verify_rm_reward"] for row in tail) / len(tail),
        rule_accuracy=sum(row["rollout/rule_accuracy"] for row in tail) / len(tail),
        num_pairs=sum(int(row.get("pairs/count", 0)) for row in own),
        num_skipped_reward_updates=sum(row.get("pairs/count") == 0 for row in own),
        seconds=seconds,
    )
