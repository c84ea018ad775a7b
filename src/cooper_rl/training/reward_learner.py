"""The reward and its learning: phases 2, 5 and 6 of a step (rows 7, 11 and 12).

It needs completions as texts: neither the policy nor token ids. `training/step.py` and the public
`CooperReward` both use it, so that a reward learns in any trainer as it does in `train_cooper`.
"""

import random
import time
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from cooper_rl.config import names
from cooper_rl.config.cooper import CooperConfig
from cooper_rl.distributed.trainable import Trainable
from cooper_rl.machine.memory import explains_memory
from cooper_rl.method.advantages import mix_rewards
from cooper_rl.models.verify_rm import VerifyItem, VerifyRM
from cooper_rl.randomness import derive_seed
from cooper_rl.schema.data import Pairing, PreferencePair, VerifyExample
from cooper_rl.training.gate import START_OF, RewardGate, update_behind_gate
from cooper_rl.training.pair_queue import PairQueue
from cooper_rl.training.reward_update import update_verify_rm
from cooper_rl.training.rollout import Group, Scores, score_rollouts
from cooper_rl.verdicts.hybrid import Judge
from cooper_rl.verdicts.verifier import Verifier


class Rewarded(NamedTuple):
    """Phase 2: what the verifiers say of every completion, and its reward; groups contiguous."""

    scores: Scores
    rewards: list[float]


class Learned(NamedTuple):
    """Phases 5 and 6: the pairs that VerifyRM was updated with, and the numbers of the update."""

    pairs: list[PreferencePair]
    metrics: dict[str, float]


@dataclass(frozen=True)
class RewardLearner:
    """VerifyRM with everything that scores beside it and trains it; the model is changed in place.

    A step calls `score`, `begin_pairs` and `learn` in this order. Pairs are made in the background between
    the last two. Every rank calls all three with the same arguments.
    """

    verify_rm: VerifyRM
    optimizer: Trainable
    """Steps VerifyRM's weights; knows the processes that train together."""
    rule: Verifier
    judge: Judge | None
    """Only asked where the reward is its verdict."""
    pairs: PairQueue | None
    """None when VerifyRM is not updated."""
    gate: RewardGate | None
    anchors: Sequence[VerifyItem]
    """Completions of the starting policy that show VerifyRM's level to the monitor; may be empty."""
    replay: Sequence[VerifyExample]
    """Labelled examples that `reward.num_replay_examples` are drawn from."""
    config: CooperConfig
    seed: int

    def score(self, groups: Sequence[Group], *, falls_back_to_rule: bool = False) -> Rewarded:
        """Rewards of all completions from VerifyRM as it is now.

        Args:
            groups: Completions of the step, one group per problem.
            falls_back_to_rule: The monitor found hacking: the reward is the rule verdict.

        Raises:
            ServerError: the judge cannot be used, and the reward is its verdict.
            TrainingError: a score is not finite.
        """
        config = self.config
        scores = score_rollouts(
            groups,
            self.verify_rm,
            self.rule,
            judge=self.judge if config.reward.kind == "judge" else None,
            max_tokens_per_batch=config.max_tokens_per_batch,
            ranks=self.optimizer.ranks,
        )
        rewards = mix_rewards(
            "rule" if falls_back_to_rule else config.reward.kind,
            verify_rm=scores.verify_rm,
            rule=scores.rule,
            judge=scores.judge,
        )
        return Rewarded(scores, rewards)

    def score_anchors(self) -> dict[str, float]:
        """VerifyRM's level, as a metric; empty without anchors."""
        if not self.anchors:
            return {}
        scores = self.verify_rm.score(self.anchors, max_tokens_per_batch=self.config.max_tokens_per_batch)
        return {"verify_rm/anchor_score": sum(scores) / len(scores)}

    def begin_pairs(self, groups: Sequence[Group], scores: Scores, *, step: int) -> None:
        """Start to make the step's preference pairs in the background."""
        if self.pairs is not None:
            self.pairs.submit(groups, scores, step=step, seed=step_seed(self.seed, step))

    def learn(self, *, step: int) -> Learned:
        """Wait for the pairs, then update VerifyRM once, behind the gate where there is one.

        Raises:
            TrainingError: a loss, gradient or score is not finite; the weights are left as before.
        """
        if self.pairs is None:
            return Learned([], {})
        metrics: dict[str, float] = {}
        with timed(metrics, "pairing"):
            pairing = self.pairs.take()
        with timed(metrics, "reward_update"), updating("VerifyRM", self.config):
            metrics |= self._update(pairing.pairs, seed=step_seed(self.seed, step))
        return Learned(pairing.pairs, metrics | _describe_pairs(pairing))

    def _update(self, pairs: Sequence[PreferencePair], *, seed: int) -> dict[str, float]:
        config = self.config
        draw = random.Random(derive_seed(seed, "replay"))
        replay = draw.sample(self.replay, min(config.reward.num_replay_examples, len(self.replay)))
        if self.gate is None:
            update = update_verify_rm(self.verify_rm, self.optimizer, pairs, replay, config=config)
            return {} if update is None else {f"verify_rm/{k}": v for k, v in update._asdict().items()}
        gated = update_behind_gate(self.gate, self.verify_rm, self.optimizer, pairs, replay, config=config)
        if gated is None:
            return {}
        return {
            **{f"verify_rm/{name}": value for name, value in gated.update._asdict().items()},
            "gate/accuracy": gated.reading.accuracy,
            "gate/canary_rate": gated.reading.canary_rate,
            "gate/rolled_back": float(gated.is_rolled_back),
            "gate/data": float(self.gate.data),
            "gate/start_accuracy": self.gate.start.accuracy,
            "gate/start_canary_rate": self.gate.start.canary_rate,
            "gate/worst_attack_rise": self.gate.worst_rise(gated.reading),
            **{f"{START_OF}{attack}": rate for attack, rate in self.gate.start.attacks.items()},
        }


def step_seed(seed: int, step: int) -> int:
    """Seed of every draw of a step (from 1); a resumed run makes the draws of the uninterrupted one."""
    return derive_seed(seed, "step", step)


@contextmanager
def timed(metrics: dict[str, float], phase: str) -> Generator[None]:
    """Add the block's wall-clock time as `seconds/<phase>`."""
    started = time.perf_counter()
    yield
    metrics[f"seconds/{phase}"] = time.perf_counter() - started


def updating(model: str, config: CooperConfig) -> AbstractContextManager[None]:
    """An update that runs out of memory in the block says which settings to lower."""
    remedy = (
        f"lower cooper.max_tokens_per_batch={config.max_tokens_per_batch}, or set "
        "cooper.gradient_checkpointing=true or distributed.offload_optimizer=true"
    )
    return explains_memory(f"the {model}'s update", remedy)


def describe_scores(scores: Scores, rewards: Sequence[float]) -> dict[str, float]:
    """Means over all completions of a step."""
    count = len(rewards)
    found = {
        "rollout/reward": sum(rewards) / count,
        "rollout/verify_rm_reward": sum(scores.verify_rm) / count,
        "rollout/rule_accuracy": scores.rule.count("correct") / count,
        "rollout/rejected_score": _mean_of_rejected(scores),
        "rollout/rule_unparsable": scores.rule.count("unparsable") / count,
    }
    if scores.judge is not None:
        found["rollout/judge_accuracy"] = scores.judge.count("correct") / count
    return found


def _mean_of_rejected(scores: Scores) -> float:
    """VerifyRM's mean score of completions that the rule verifier calls incorrect; 0 without any."""
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
        **{f"pairs/{source}": sources[source] for source in names.NEGATIVE_SOURCES.names},
    }
