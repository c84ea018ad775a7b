"""One Cooper step: the six phases of the method, in order (rows 6 to 12 of the walk).

Phases 2, 5 and 6 are in `reward_learner.py`; phase 5 runs beside phase 4 (`pair_queue.py`), and phase 1 of
later steps beside all of them where rollouts are drawn ahead (`rollout_queue.py`). Departures from the paper,
each with its reason in `docs/concepts/paper_index.md`: the divisor of the advantages has a floor, positives
and negatives are checked by the same rule verifier against the reference answer, VerifyRM's score and the
rule verdict are computed for every rollout whatever the reward is.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import torch

from cooper_rl.config.cooper import CooperConfig
from cooper_rl.distributed.trainable import Trainable
from cooper_rl.engines.base import Engine
from cooper_rl.method.advantages import group_advantages, overlong_penalties
from cooper_rl.models.policy import Policy
from cooper_rl.randomness import derive_seed
from cooper_rl.schema.data import PreferencePair, Problem, RolloutSample
from cooper_rl.schema.step_metrics import Phase, RolloutMetrics, StepMetrics
from cooper_rl.training.optimizer import set_warmed_up_lr
from cooper_rl.training.policy_update import update_policy
from cooper_rl.training.refill import Scored, count_flat, refill_flat
from cooper_rl.training.reward_learner import (
    RewardLearner,
    describe_judge,
    describe_scores,
    describe_verify_rm,
    step_seed,
    timed,
    updating,
)
from cooper_rl.training.rollout import RolloutGroup, begin_rollouts, sample_rollouts
from cooper_rl.training.rollout_queue import RolloutQueue


@dataclass(frozen=True)
class Trainer:
    """The parts that every step uses; the models and their optimisers are changed in place."""

    policy: Policy
    reference: Policy
    """The frozen policy that the KL term holds on to."""
    engine: Engine
    policy_optimizer: Trainable
    """Knows the processes that train together."""
    reward: RewardLearner
    """VerifyRM, and everything that scores beside it and trains it."""
    config: CooperConfig
    instruction: str | None
    seed: int
    pool: Sequence[Problem] = ()
    """Problems that refills are drawn from (`cooper.max_refills`)."""
    rollouts: RolloutQueue = field(default_factory=RolloutQueue)
    """The rollouts that are drawn ahead."""


class StepResult(NamedTuple):
    """The results of a step: numbers for metrics.jsonl, pairs and rollouts for the audit."""

    metrics: StepMetrics
    pairs: list[PreferencePair]
    rollouts: list[RolloutSample]


def run_step(
    trainer: Trainer,
    step: int,
    problems: Sequence[Problem],
    *,
    ahead: Sequence[Sequence[Problem]] = (),
    falls_back_to_rule: bool = False,
) -> StepResult:
    """Update both models once: rollouts, rewards, advantages, policy update, pairs, reward update.

    Args:
        trainer: Models, servers, settings.
        step: From 1.
        problems: Of this step.
        ahead: Of the next `cooper.max_rollout_staleness` steps, whose rollouts are drawn ahead.
        falls_back_to_rule: The monitor found hacking: the reward is the rule verdict from here on.

    Raises:
        ServerError: the judge cannot be used, and the reward is its verdict.
        TrainingError: a score, loss or gradient is not finite.
    """
    config = trainer.config
    seconds: dict[Phase, float] = {}
    num_replaced: int | None = None

    with timed(seconds, "rollout"), trainer.policy_optimizer.gather():  # 1. rollouts
        drawn = trainer.rollouts.draw(step, [problems, *ahead], partial(_begin_step, trainer))
        groups = drawn.groups()
        if not config.max_refills:
            # vLLM hands its memory back for the update; the HF engine has none of its own.
            trainer.engine.sleep()
    with timed(seconds, "reward"):  # 2. rewards
        scored = _score(trainer, groups, falls_back_to_rule=falls_back_to_rule)
        # Before the reward update of this step, so that level and rewards speak of the same VerifyRM.
        anchor_score = trainer.reward.score_anchors()
    if config.max_refills:
        # The engine stays awake until here: it would have no weights left to draw again with.
        with timed(seconds, "refill"), trainer.policy_optimizer.gather():  # 1 and 2 again
            scored, num_replaced = refill_flat(
                scored,
                trainer.pool,
                lambda chosen, seed: _score(
                    trainer, _begin(trainer, chosen, seed)(), falls_back_to_rule=falls_back_to_rule
                ),
                max_refills=config.max_refills,
                seed=step_seed(trainer.seed, step),
            )
            trainer.engine.sleep()
    groups, scores, rewards, *_ = scored
    advantages = group_advantages(  # 3. advantages
        torch.tensor(rewards),
        group_size=config.group_size,
        scale=config.advantages.scale,
        std_floor=config.advantages.std_floor,
        estimator=config.advantages.estimator,
    )
    trainer.reward.begin_pairs(groups, scores, step=step)
    with timed(seconds, "policy_update"), updating("policy", config):  # 4. policy update
        set_warmed_up_lr(
            trainer.policy_optimizer, config.policy.lr, step=step, warmup_steps=config.policy.warmup_steps
        )
        policy = update_policy(
            trainer.policy, trainer.reference, trainer.policy_optimizer, groups, advantages, config=config
        )
        with trainer.policy_optimizer.gather():
            # At the end of the update and not at the next rollout: an evaluation may draw in between.
            trainer.engine.load_weights(trainer.policy.weights())
    learned = trainer.reward.learn(seconds, step=step)  # 5. wait for the pairs; 6. reward update
    rollout = describe_scores(groups, scores, rewards)
    _describe_rollouts(rollout, scored, advantages, num_replaced)
    rollout.staleness = drawn.staleness if config.max_rollout_staleness else None
    return StepResult(
        metrics=StepMetrics(
            step=step,
            rollout=rollout,
            policy=policy,
            verify_rm=describe_verify_rm(anchor_score, learned.update),
            pairs=learned.made,
            judge=describe_judge(scored.num_judged, learned.pairing),
            gate=learned.gate,
            seconds=seconds,
        ),
        pairs=learned.pairing.pairs,
        rollouts=sample_rollouts(groups, scores, rewards, step=step, count=config.num_logged_rollouts),
    )


def _begin_step(trainer: Trainer, problems: Sequence[Problem], step: int) -> Callable[[], list[RolloutGroup]]:
    return _begin(trainer, problems, step_seed(trainer.seed, step))


def _begin(trainer: Trainer, problems: Sequence[Problem], seed: int) -> Callable[[], list[RolloutGroup]]:
    """Phase 1; what it returns waits for the rollouts, and is collective."""
    return begin_rollouts(
        trainer.engine,
        trainer.policy,
        problems,
        trainer.config.generation,
        group_size=trainer.config.group_size,
        instruction=trainer.instruction,
        seed=seed,
        ranks=trainer.policy_optimizer.ranks,
    )


def _score(trainer: Trainer, groups: list[RolloutGroup], *, falls_back_to_rule: bool) -> Scored:
    """Phase 2; collective."""
    config = trainer.config
    scores, rewards, accuracies = trainer.reward.score(groups, falls_back_to_rule=falls_back_to_rule)
    if config.reward.overlong_buffer_tokens is not None:
        penalties = overlong_penalties(
            [len(generation.token_ids) for group in groups for generation in group.generations],
            max_new_tokens=config.generation.max_new_tokens,
            buffer_tokens=config.reward.overlong_buffer_tokens,
            weight=config.reward.overlong_penalty,
        )
        rewards = [reward + penalty for reward, penalty in zip(rewards, penalties, strict=True)]
    return Scored(groups, scores, rewards, accuracies, num_judged=len(scores.judge or ()))


def step_problems(problems: Sequence[Problem], step: int, *, count: int, seed: int) -> list[Problem]:
    """The problems of a step (from 1): consecutive slots of epochs that are each shuffled with the seed.

    A function of its arguments alone, so that a resumed run meets the same problems.
    """
    chosen: list[Problem] = []
    orders: dict[int, torch.Tensor] = {}
    for slot in range((step - 1) * count, step * count):
        epoch, place = divmod(slot, len(problems))
        if epoch not in orders:
            # One generator per epoch: step 10,000 is found without drawing the ones before.
            generator = torch.Generator().manual_seed(derive_seed(seed, "problems", epoch))
            orders[epoch] = torch.randperm(len(problems), generator=generator)
        chosen.append(problems[int(orders[epoch][place])])
    return chosen


def _describe_rollouts(
    metrics: RolloutMetrics, scored: Scored, advantages: torch.Tensor, num_replaced: int | None
) -> None:
    """Add what only the trainer of the policy knows."""
    generations = [generation for group in scored.groups for generation in group.generations]
    num_cut = sum(generation.finish_reason == "length" for generation in generations)
    num_tokens = sum(len(generation.token_ids) for generation in generations)
    metrics.refilled = num_replaced
    metrics.tokens = num_tokens
    metrics.completion_tokens = num_tokens / len(generations)
    # The engine said it when it drew the tokens: no model is asked again.
    metrics.entropy = sum(-logprob for each in generations for logprob in each.logprobs) / num_tokens
    metrics.equal_groups = count_flat(scored) / len(scored.groups)
    metrics.cut_fraction = num_cut / len(generations)
    metrics.abs_advantage = advantages.abs().mean().item()
