"""One Cooper step: the six phases of the method, in order (rows 6 to 12 of the walk).

Phase 5 runs beside phase 4 (`pair_queue.py`). Departures from the paper, each with its reason in
`docs/paper_index.md`: the divisor of the advantages has a floor, positives and negatives are checked by the
same rule verifier against the reference answer, VerifyRM's score and the rule verdict are computed for every
rollout whatever the reward is.
"""

import random
import time
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field

import torch

from cooper_rl.config.cooper import CooperConfig
from cooper_rl.distributed.ranks import Ranks
from cooper_rl.distributed.trainable import Trainable
from cooper_rl.engines.base import Engine
from cooper_rl.machine.memory import explains_memory
from cooper_rl.method.advantages import RewardKind, group_advantages, mix_rewards, overlong_penalties
from cooper_rl.models.policy import Policy
from cooper_rl.models.verify_rm import VerifyItem, VerifyRM
from cooper_rl.negatives.pairs import SOURCES
from cooper_rl.randomness import derive_seed
from cooper_rl.schema.data import Pairing, PreferencePair, Problem, RolloutSample, VerifyExample
from cooper_rl.training.gate import RewardGate, update_behind_gate
from cooper_rl.training.optimizer import set_warmed_up_lr
from cooper_rl.training.pair_queue import PairQueue
from cooper_rl.training.policy_update import update_policy
from cooper_rl.training.refill import Scored, refill_flat
from cooper_rl.training.reward_update import update_verify_rm
from cooper_rl.training.rollout import (
    RolloutGroup,
    Scores,
    collect_rollouts,
    sample_rollouts,
    score_rollouts,
)
from cooper_rl.verdicts.hybrid import Judge
from cooper_rl.verdicts.rule import RuleVerifier


@dataclass(frozen=True)
class Trainer:
    """What every step uses; the models and their optimisers are changed in place."""

    policy: Policy
    reference: Policy
    """The frozen policy that the KL term holds on to."""
    verify_rm: VerifyRM
    engine: Engine
    rule: RuleVerifier
    judge: Judge | None
    """Only asked where the reward is its verdict."""
    pairs: PairQueue | None
    """None when VerifyRM is not updated."""
    gate: RewardGate | None
    anchors: Sequence[VerifyItem]
    """Completions of the starting policy that show VerifyRM's level to the monitor; may be empty."""
    replay: Sequence[VerifyExample]
    """Labelled examples that `replay_examples` are drawn from."""
    policy_optimizer: Trainable
    """Knows the processes that train together."""
    verify_rm_optimizer: Trainable
    config: CooperConfig
    instruction: str | None
    seed: int
    pool: Sequence[Problem] = ()
    """Problems that refills are drawn from (`cooper.max_refills`)."""


@dataclass
class StepResult:
    """What a step leaves behind: numbers for metrics.jsonl, pairs and rollouts for the audit."""

    metrics: dict[str, float] = field(default_factory=dict[str, float])
    pairs: list[PreferencePair] = field(default_factory=list[PreferencePair])
    rollouts: list[RolloutSample] = field(default_factory=list[RolloutSample])


def run_step(
    trainer: Trainer, step: int, problems: Sequence[Problem], *, falls_back_to_rule: bool = False
) -> StepResult:
    """Both models, once: rollouts, rewards, advantages, policy update, pairs, reward update.

    Args:
        trainer: Models, servers, settings.
        step: From 1.
        problems: Of this step.
        falls_back_to_rule: The monitor found hacking: the reward is the rule verdict from here on.

    Raises:
        ServerError: the judge cannot be used, and the reward is its verdict.
        TrainingError: a score, loss or gradient is not finite.
    """
    config = trainer.config
    result = StepResult(metrics={"step": step})
    seed = derive_seed(trainer.seed, "step", step)

    ranks = trainer.policy_optimizer.ranks

    with _timed(result, "rollout"), trainer.policy_optimizer.gather():  # 1. rollouts
        groups = _draw(trainer, problems, seed, ranks)
        if not config.max_refills:
            trainer.engine.sleep()
    reward_kind = "rule" if falls_back_to_rule else config.reward.kind
    with _timed(result, "reward"):  # 2. rewards
        scored = _score(trainer, groups, reward_kind, ranks)
        if trainer.anchors:
            anchored = trainer.verify_rm.score(
                trainer.anchors, max_tokens_per_batch=config.max_tokens_per_batch
            )
            result.metrics["verify_rm/anchor_score"] = sum(anchored) / len(anchored)
    if config.max_refills:
        # The engine stays awake until here: it would have no weights left to draw again with.
        with _timed(result, "refill"), trainer.policy_optimizer.gather():  # 1 and 2 again
            scored, num_replaced = refill_flat(
                scored,
                trainer.pool,
                lambda chosen, seed: _score(trainer, _draw(trainer, chosen, seed, ranks), reward_kind, ranks),
                max_refills=config.max_refills,
                seed=seed,
            )
            result.metrics["rollout/refilled"] = num_replaced
            trainer.engine.sleep()
    groups, scores, rewards = scored
    advantages = group_advantages(  # 3. advantages
        torch.tensor(rewards),
        group_size=config.group_size,
        scale=config.advantages.scale,
        std_floor=config.advantages.std_floor,
        estimator=config.advantages.estimator,
    )
    if trainer.pairs is not None:
        trainer.pairs.submit(groups, scores, step=step, seed=seed)
    with _timed(result, "policy_update"), _updating("policy", config):  # 4. policy update
        set_warmed_up_lr(
            trainer.policy_optimizer, config.policy.lr, step=step, warmup_steps=config.policy.warmup_steps
        )
        policy_update = update_policy(
            trainer.policy, trainer.reference, trainer.policy_optimizer, groups, advantages, config=config
        )
        with trainer.policy_optimizer.gather():
            trainer.engine.load_weights(trainer.policy.weights())
    result.metrics |= _describe_rollouts(groups, scores, rewards, advantages)
    result.metrics |= {
        f"policy/{name}": value for name, value in policy_update._asdict().items() if value is not None
    }
    result.rollouts = sample_rollouts(groups, scores, rewards, step=step, count=config.num_logged_rollouts)

    if trainer.pairs is not None:
        with _timed(result, "pairing"):  # 5. pairs: what the policy update did not hide
            pairing = trainer.pairs.take()
        with _timed(result, "reward_update"), _updating("VerifyRM", config):  # 6. reward update
            result.metrics |= _update_reward(trainer, pairing.pairs, seed=seed)
        result.pairs = pairing.pairs
        result.metrics |= _describe_pairs(pairing)
    return result


def _draw(trainer: Trainer, problems: Sequence[Problem], seed: int, ranks: Ranks) -> list[RolloutGroup]:
    """Phase 1; collective."""
    return collect_rollouts(
        trainer.engine,
        trainer.policy,
        problems,
        trainer.config.generation,
        group_size=trainer.config.group_size,
        instruction=trainer.instruction,
        seed=seed,
        ranks=ranks,
    )


def _score(trainer: Trainer, groups: list[RolloutGroup], kind: RewardKind, ranks: Ranks) -> Scored:
    """Phase 2; collective."""
    config = trainer.config
    scores = score_rollouts(
        groups,
        trainer.verify_rm,
        trainer.rule,
        judge=trainer.judge if config.reward.kind == "judge" else None,
        max_tokens_per_batch=config.max_tokens_per_batch,
        ranks=ranks,
    )
    rewards = mix_rewards(kind, verify_rm=scores.verify_rm, rule=scores.rule, judge=scores.judge)
    if config.reward.overlong_buffer_tokens is not None:
        penalties = overlong_penalties(
            [len(generation.token_ids) for group in groups for generation in group.generations],
            max_new_tokens=config.generation.max_new_tokens,
            buffer_tokens=config.reward.overlong_buffer_tokens,
            weight=config.reward.overlong_penalty,
        )
        rewards = [reward + penalty for reward, penalty in zip(rewards, penalties, strict=True)]
    return Scored(groups, scores, rewards)


def _update_reward(trainer: Trainer, pairs: Sequence[PreferencePair], *, seed: int) -> dict[str, float]:
    """One update of VerifyRM, behind the gate where there is one; its numbers."""
    config = trainer.config
    draw = random.Random(derive_seed(seed, "replay"))
    replay = draw.sample(trainer.replay, min(config.reward.num_replay_examples, len(trainer.replay)))
    if trainer.gate is None:
        update = update_verify_rm(
            trainer.verify_rm, trainer.verify_rm_optimizer, pairs, replay, config=config
        )
        return {} if update is None else {f"verify_rm/{k}": v for k, v in update._asdict().items()}
    gated = update_behind_gate(
        trainer.gate, trainer.verify_rm, trainer.verify_rm_optimizer, pairs, replay, config=config
    )
    if gated is None:
        return {}
    return {
        **{f"verify_rm/{name}": value for name, value in gated.update._asdict().items()},
        "gate/accuracy": gated.reading.accuracy,
        "gate/canary_rate": gated.reading.canary_rate,
        "gate/rolled_back": float(gated.is_rolled_back),
        "gate/data": float(trainer.gate.data),
        "gate/start_accuracy": trainer.gate.start.accuracy,
        "gate/start_canary_rate": trainer.gate.start.canary_rate,
    }


def step_problems(problems: Sequence[Problem], step: int, *, count: int, seed: int) -> list[Problem]:
    """The problems of a step (from 1): consecutive slots of epochs that are each shuffled with the seed.

    A function of its arguments alone, so that a resumed run meets the same problems.
    """
    chosen: list[Problem] = []
    orders: dict[int, torch.Tensor] = {}
    for slot in range((step - 1) * count, step * count):
        epoch, place = divmod(slot, len(problems))
        if epoch not in orders:
            generator = torch.Generator().manual_seed(derive_seed(seed, "problems", epoch))
            orders[epoch] = torch.randperm(len(problems), generator=generator)
        chosen.append(problems[int(orders[epoch][place])])
    return chosen


def _describe_rollouts(
    groups: Sequence[RolloutGroup], scores: Scores, rewards: Sequence[float], advantages: torch.Tensor
) -> dict[str, float]:
    generations = [generation for group in groups for generation in group.generations]
    count = len(generations)
    found = {
        "rollout/reward": sum(rewards) / count,
        "rollout/verify_rm_reward": sum(scores.verify_rm) / count,
        "rollout/rule_accuracy": scores.rule.count("correct") / count,
        "rollout/rejected_score": _mean_of_rejected(scores),
        "rollout/rule_unparsable": scores.rule.count("unparsable") / count,
        "rollout/tokens": sum(len(generation.token_ids) for generation in generations),
        "rollout/cut_fraction": sum(generation.finish_reason == "length" for generation in generations)
        / count,
        "rollout/abs_advantage": advantages.abs().mean().item(),
    }
    if scores.judge is not None:
        found["rollout/judge_accuracy"] = scores.judge.count("correct") / count
    return found


def _mean_of_rejected(scores: Scores) -> float:
    """VerifyRM's mean score of rollouts that the rule verifier calls incorrect; 0 without any."""
    rejected = [
        score for score, verdict in zip(scores.verify_rm, scores.rule, strict=True) if verdict == "incorrect"
    ]
    return sum(rejected) / max(len(rejected), 1)


def _describe_pairs(pairing: Pairing) -> dict[str, float]:
    sources = Counter(pair.source.partition(":")[0] for pair in pairing.pairs)
    return {
        "pairs/count": len(pairing.pairs),
        "pairs/positives": pairing.num_positives,
        "pairs/rewrites": pairing.num_rewrites,
        "pairs/unanswered": pairing.num_unanswered,
        **({"pairs/hedged": pairing.num_hedged} if pairing.num_hedged else {}),
        **{f"pairs/{source}": sources[source] for source in SOURCES},
    }


def _updating(model: str, config: CooperConfig) -> AbstractContextManager[None]:
    remedy = (
        f"lower cooper.max_tokens_per_batch={config.max_tokens_per_batch}, or set "
        "cooper.gradient_checkpointing=true or distributed.offload_optimizer=true"
    )
    return explains_memory(f"the {model}'s update", remedy)


@contextmanager
def _timed(result: StepResult, phase: str) -> Generator[None]:
    started = time.perf_counter()
    yield
    result.metrics[f"seconds/{phase}"] = time.perf_counter() - started
