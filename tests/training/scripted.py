"""Whole steps without drawing: a trainer whose engine writes given texts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from cooper_rl.distributed.trainable import SingleProcess
from cooper_rl.domains.open import default_domain
from cooper_rl.models.policy import Policy
from cooper_rl.models.verify_rm import VerifyRM
from cooper_rl.schema.data import Problem
from cooper_rl.training.optimizer import make_adamw
from cooper_rl.training.pair_queue import PairQueue
from cooper_rl.training.pairing import PairMaker
from cooper_rl.training.reward_learner import RewardLearner
from cooper_rl.training.step import Trainer
from tests.stand_ins.scripted_engine import ScriptedEngine


def scripted_trainer(
    make_policy: Callable[[int], Policy],
    verify_rm: VerifyRM,
    maker: PairMaker,
    script: Mapping[Problem, Sequence[str]],
) -> Trainer:
    """Policy and reference policy of seed 0; every text of `script` is complete, with an end token."""
    policy, config = make_policy(0), maker.config
    lines = {
        tuple(policy.encode_prompt(problem.question, None)): [
            (*policy.tokenizer(text)["input_ids"], policy.tokenizer.eos_token_id) for text in texts
        ]
        for problem, texts in script.items()
    }
    reward = RewardLearner(
        verify_rm=verify_rm,
        optimizer=SingleProcess(
            verify_rm.model,
            make_adamw(verify_rm.model, lr=config.reward.lr, weight_decay=config.reward.weight_decay),
        ),
        rule=maker.rule,
        judge=None,
        pairs=PairQueue(maker, max_staleness=config.pairs.max_staleness) if config.trains_verify_rm else None,
        gate=None,
        anchors=(),
        replay=(),
        domain=default_domain(),
        config=config,
        seed=0,
    )
    return Trainer(
        policy=policy,
        reference=make_policy(0),
        engine=ScriptedEngine(lines, end_ids=policy.end_ids),
        policy_optimizer=SingleProcess(
            policy.model,
            make_adamw(policy.model, lr=config.policy.lr, weight_decay=config.policy.weight_decay),
        ),
        reward=reward,
        config=config,
        instruction=None,
        seed=0,
        pool=list(script),
    )


def with_reward(trainer: Trainer, **changes: Any) -> Trainer:
    """The trainer with other fields of its reward learner."""
    return replace(trainer, reward=replace(trainer.reward, **changes))
