"""One Cooper step: the six phases of the method, in order (rows 6 to 12 of the walk).

Departures from the paper, each with its reason in `docs/paper_index.md`: the divisor of the advantages
has a floor, positives and negatives are checked by the same rule verifier against the reference answer,
VerifyRM's score and the rule verdict are computed for every rollout whatever the reward is.
"""

import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

from cooper_rl.backends.engine import Engine
from cooper_rl.backends.policy import Policy
from cooper_rl.backends.rule_verifier import RuleVerifier
from cooper_rl.backends.verify_rm import VerifyRM
from cooper_rl.config import CooperConfig
from cooper_rl.core.advantages import group_advantages
from cooper_rl.core.pairs import Assistant
from cooper_rl.core.randomness import derive_seed
from cooper_rl.schema import PreferencePair, Problem
from cooper_rl.training.pairing import make_pairs
from cooper_rl.training.policy_update import update_policy
from cooper_rl.training.reward_update import update_verify_rm
from cooper_rl.training.rollout import RolloutGroup, Scores, collect_rollouts, score_rollouts


@dataclass(frozen=True)
class Trainer:
    """What every step uses; the models and their optimisers are changed in place."""

    policy: Policy
    reference: Policy
    """The frozen policy that the KL term holds on to."""
    verify_rm: VerifyRM
    engine: Engine
    rule: RuleVerifier
    assistant: Assistant | None
    """None when VerifyRM is not updated."""
    policy_optimizer: torch.optim.Optimizer
    verify_rm_optimizer: torch.optim.Optimizer
    config: CooperConfig
    instruction: str | None
    seed: int


@dataclass
class StepResult:
    """What a step leaves behind: numbers for metrics.jsonl, and its pairs for the audit."""

    metrics: dict[str, float] = field(default_factory=dict[str, float])
    pairs: list[PreferencePair] = field(default_factory=list[PreferencePair])


def run_step(trainer: Trainer, step: int, problems: Sequence[Problem]) -> StepResult:
    """Both models, once: rollouts, rewards, advantages, policy update, pairs, reward update.

    Raises:
        TrainingError: a score, loss or gradient is not finite.
        ServerError: the assistant cannot be used.
    """
    config = trainer.config
    result = StepResult(metrics={"step": step})
    seed = derive_seed(trainer.seed, "step", step)

    with _timed(result, "rollout"):  # 1. rollouts
        groups = collect_rollouts(
            trainer.engine,
            trainer.policy,
            problems,
            config.generation,
            group_size=config.group_size,
            instruction=trainer.instruction,
            seed=seed,
        )
    with _timed(result, "reward"):  # 2. rewards
        scores = score_rollouts(
            groups, trainer.verify_rm, trainer.rule, max_tokens_per_batch=config.max_tokens_per_batch
        )
        rewards = torch.tensor(scores.verify_rm if config.reward == "verify_rm" else scores.rule_rewards)
    advantages = group_advantages(  # 3. advantages
        rewards, group_size=config.group_size, std_floor=config.advantage_std_floor
    )
    with _timed(result, "policy_update"):  # 4. policy update
        policy_update = update_policy(
            trainer.policy, trainer.reference, trainer.policy_optimizer, groups, advantages, config=config
        )
        trainer.engine.load_weights(trainer.policy.weights())
    _record_rollouts(result, groups, scores, advantages)
    result.metrics |= {f"policy/{name}": value for name, value in policy_update._asdict().items()}

    if trainer.assistant is not None:
        with _timed(result, "pairing"):  # 5. pairs
            pairing = make_pairs(
                groups,
                scores.rule,
                trainer.assistant,
                trainer.rule,
                max_attempts=config.max_negative_attempts,
                step=step,
                seed=seed,
            )
        with _timed(result, "reward_update"):  # 6. reward update
            reward_update = update_verify_rm(
                trainer.verify_rm, trainer.verify_rm_optimizer, pairing.pairs, config=config
            )
        result.pairs = pairing.pairs
        result.metrics |= {
            "pairs/count": len(pairing.pairs),
            "pairs/positives": pairing.num_positives,
            "pairs/rewrites": pairing.num_rewrites,
        }
        if reward_update is not None:
            result.metrics |= {f"verify_rm/{name}": value for name, value in reward_update._asdict().items()}
    return result


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


def _record_rollouts(
    result: StepResult, groups: Sequence[RolloutGroup], scores: Scores, advantages: torch.Tensor
) -> None:
    generations = [generation for group in groups for generation in group.generations]
    count = len(generations)
    result.metrics |= {
        "rollout/verify_rm_reward": sum(scores.verify_rm) / count,
        "rollout/rule_accuracy": sum(scores.rule_rewards) / count,
        "rollout/rule_unparsable": scores.rule.count("unparsable") / count,
        "rollout/tokens": sum(len(generation.token_ids) for generation in generations),
        "rollout/cut_fraction": sum(generation.finish_reason == "length" for generation in generations)
        / count,
        "rollout/abs_advantage": advantages.abs().mean().item(),
    }


@contextmanager
def _timed(result: StepResult, phase: str) -> Generator[None]:
    started = time.perf_counter()
    yield
    result.metrics[f"seconds/{phase}"] = time.perf_counter() - started
