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
from cooper_rl.domains.base import Domain
from cooper_rl.errors import TrainingError
from cooper_rl.machine.memory import explains_memory
from cooper_rl.method.advantages import accuracies, mix_rewards
from cooper_rl.method.ordering import order_of
from cooper_rl.models.verify_rm import VerifyItem, VerifyRM
from cooper_rl.randomness import derive_seed
from cooper_rl.redteam.hostile import hostile_examples
from cooper_rl.schema.data import Pairing, VerifyExample
from cooper_rl.schema.step_metrics import (
    GateMetrics,
    JudgeMetrics,
    PairMetrics,
    Phase,
    RolloutMetrics,
    VerifyRMMetrics,
)
from cooper_rl.training.gate import RewardGate, update_behind_gate
from cooper_rl.training.pair_queue import PairQueue
from cooper_rl.training.reward_update import RewardUpdate, update_verify_rm
from cooper_rl.training.rollout import Group, Scores, score_rollouts
from cooper_rl.verdicts.hybrid import Judge
from cooper_rl.verdicts.verifier import Verifier


class Rewarded(NamedTuple):
    """Phase 2: what the verifiers say of every completion, and its reward; groups contiguous."""

    scores: Scores
    rewards: list[float]
    accuracies: list[bool | None]
    """True for each completion that the verdict behind the reward calls right; None if nobody can say."""


class Learned(NamedTuple):
    """Phases 5 and 6: the pairs that VerifyRM was updated with, and the numbers of the update."""

    pairing: Pairing
    made: PairMetrics
    update: RewardUpdate | None
    """None: there were no pairs, or VerifyRM is not updated."""
    gate: GateMetrics


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
    domain: Domain
    """Says which hostile texts hold an answer."""
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
        kind = "rule" if falls_back_to_rule else config.reward.kind
        return Rewarded(
            scores,
            mix_rewards(kind, verify_rm=scores.verify_rm, rule=scores.rule, judge=scores.judge),
            accuracies(kind, rule=scores.rule, judge=scores.judge),
        )

    def score_anchors(self) -> float | None:
        """VerifyRM's level: its mean score of the anchors; None without any."""
        if not self.anchors:
            return None
        scores = self.verify_rm.score(self.anchors, max_tokens_per_batch=self.config.max_tokens_per_batch)
        return sum(scores) / len(scores)

    def begin_pairs(self, groups: Sequence[Group], scores: Scores, *, step: int) -> None:
        """Start to make the step's preference pairs in the background."""
        if self.pairs is not None:
            self.pairs.submit(groups, scores, step=step, seed=step_seed(self.seed, step))

    def learn(self, seconds: dict[Phase, float], *, step: int) -> Learned:
        """Wait for the pairs, then update VerifyRM once, behind the gate where there is one.

        Args:
            seconds: Where the time of both phases is written.
            step: From 1.

        Raises:
            TrainingError: a loss, gradient or score is not finite; the weights are left as before.
        """
        if self.pairs is None:
            return Learned(Pairing(), PairMetrics(), None, GateMetrics())
        with timed(seconds, "pairing"):
            pairing = self.pairs.take()
        try:
            with timed(seconds, "reward_update"), updating("VerifyRM", self.config):
                update, gate = self._update(pairing, seed=step_seed(self.seed, step))
        except TrainingError:
            self.pairs.give_back(pairing)
            raise
        return Learned(pairing, _describe_pairs(pairing), update, gate)

    def _update(self, pairing: Pairing, *, seed: int) -> tuple[RewardUpdate | None, GateMetrics]:
        config, pairs = self.config, pairing.pairs
        labelled = self._draw_labelled(pairing, seed)
        if self.gate is None:
            update = update_verify_rm(self.verify_rm, self.optimizer, pairs, labelled, config=config)
            return update, GateMetrics()
        gated = update_behind_gate(self.gate, self.verify_rm, self.optimizer, pairs, labelled, config=config)
        if gated is None:
            return None, GateMetrics()
        return gated.update, self.gate.describe(gated)

    def _draw_labelled(self, pairing: Pairing, seed: int) -> list[VerifyExample]:
        """The examples whose label loss is added: audited rollouts, replayed examples and hostile texts."""
        if not pairing.pairs and not pairing.audited:  # replayed examples alone hold nothing of this step
            return []
        settings = self.config.reward
        # From the step's seed: every rank must draw the same examples, of which each then learns its share.
        draw = random.Random(derive_seed(seed, "replay"))
        replay = draw.sample(self.replay, min(settings.num_replay_examples, len(self.replay)))
        count = round(settings.hostile_fraction * len(replay))
        rng = random.Random(derive_seed(seed, "replay_hostile"))
        return [*pairing.audited, *replay, *hostile_examples(replay, count, rng, domain=self.domain)]


def step_seed(seed: int, step: int) -> int:
    """Seed of every draw of a step (from 1); a resumed run makes the draws of the uninterrupted one."""
    return derive_seed(seed, "step", step)


@contextmanager
def timed(seconds: dict[Phase, float], phase: Phase) -> Generator[None]:
    """Write the block's wall-clock time down."""
    started = time.perf_counter()
    yield
    seconds[phase] = time.perf_counter() - started


def updating(model: str, config: CooperConfig) -> AbstractContextManager[None]:
    """An update that runs out of memory in the block says which settings to lower."""
    remedy = (
        f"lower cooper.max_tokens_per_batch={config.max_tokens_per_batch}, or set "
        "cooper.gradient_checkpointing=true or distributed.offload_optimizer=true"
    )
    return explains_memory(f"the {model}'s update", remedy)


def describe_scores(groups: Sequence[Group], scores: Scores, rewards: Sequence[float]) -> RolloutMetrics:
    """Means over all completions of a step."""
    count = len(rewards)
    return RolloutMetrics(
        reward=sum(rewards) / count,
        verify_rm_reward=sum(scores.verify_rm) / count,
        rule_accuracy=scores.rule.count("correct") / count,
        rejected_score=_mean_of_rejected(scores),
        order=order_of(rewards, scores.rule, (len(group.texts) for group in groups)),
        rule_unparsable=scores.rule.count("unparsable") / count,
        judge_accuracy=None if scores.judge is None else scores.judge.count("correct") / count,
    )


def describe_judge(num_rewards: int, pairing: Pairing) -> JudgeMetrics:
    """The judge's calls of a step: for rewards, and for the pairs and audits that it learned from."""
    num_pairs, num_audits = pairing.num_judged_pairs, pairing.num_judged_audits
    return JudgeMetrics(
        calls=num_rewards + num_pairs + num_audits,
        rewards=num_rewards or None,
        pairs=num_pairs or None,
        audits=num_audits or None,
    )


def describe_verify_rm(anchor_score: float | None, update: RewardUpdate | None) -> VerifyRMMetrics:
    """VerifyRM's level, and its update where there was one."""
    if update is None:
        return VerifyRMMetrics(anchor_score=anchor_score)
    return VerifyRMMetrics(
        anchor_score=anchor_score,
        loss=update.loss,
        pair_accuracy=update.pair_accuracy,
        grad_norm=update.grad_norm,
        replay_loss=update.replay_loss,
    )


def _mean_of_rejected(scores: Scores) -> float | None:
    """VerifyRM's mean score of completions that the rule verifier calls incorrect; None without any: a policy
    that writes nothing readable any more is not one whose wrong answers earn nothing."""
    rejected = [
        score for score, verdict in zip(scores.verify_rm, scores.rule, strict=True) if verdict == "incorrect"
    ]
    return sum(rejected) / len(rejected) if rejected else None


def _describe_pairs(pairing: Pairing) -> PairMetrics:
    # A label may name a model too: `assistant:M`.
    sources = Counter(pair.source.partition(":")[0] for pair in pairing.pairs)
    return PairMetrics(
        count=len(pairing.pairs),
        positives=pairing.num_positives,
        rewrites=pairing.num_rewrites,
        unanswered=pairing.num_unanswered,
        audited=len(pairing.audited) or None,
        audited_wrong=sum(not each.label for each in pairing.audited) if pairing.audited else None,
        by_source={source: sources[source] for source in names.NEGATIVE_SOURCES.names},
    )
