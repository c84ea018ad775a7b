"""Rewards on two ranks: each verifies and scores its share, and all talk in the same order (gloo)."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from torch import distributed

from cooper_rl.config.data import RuleConfig
from cooper_rl.distributed.ranks import ALONE, Ranks
from cooper_rl.distributed.zero import SharedVerifyRM
from cooper_rl.engines.base import Generation
from cooper_rl.schema.data import Problem
from cooper_rl.tiny.judge import TinyJudge
from cooper_rl.training.rollout import RolloutGroup, Scores, score_rollouts
from cooper_rl.verdicts.rule import RuleVerifier
from tests.distributed.test_ranks import run_on_two
from tests.tiny_models import random_verify_rm

TEXTS = ("#### 10", "#### 12", "It is \\boxed{\\frac{20}{2}}.", "I do not know.", "\\boxed{\\sqrt{100}}")


class Weights(NamedTuple):
    """What scoring needs of an optimiser: whose weights are whole everywhere."""

    ranks: Ranks

    def gather(self) -> nullcontext[None]:
        return nullcontext()


def score(ranks: Ranks, count: int) -> Scores:
    """Verdicts of the first `count` texts."""
    problem = Problem(id="a", source="t", question="a?", reference_answer="10")
    made = (Generation((), (), "stop"),) * count
    verify_rm = random_verify_rm(0)
    shared = SharedVerifyRM(verify_rm.model, verify_rm.tokenizer, verify_rm.compute, optimizer=Weights(ranks))
    with RuleVerifier(RuleConfig(num_workers=1)) as rule:
        return score_rollouts(
            [RolloutGroup(problem, (1,), made, TEXTS[:count])],
            shared,
            rule,
            judge=TinyJudge(0.0, 0),
            max_tokens_per_batch=512,
            ranks=ranks,
        )


def score_as(rank: int, folder: Path, answers: Any) -> None:
    distributed.init_process_group("gloo", init_method=f"file://{folder}/met", rank=rank, world_size=2)
    ranks = Ranks(rank, 2, distributed.group.WORLD)
    # With one text the second rank has nothing to verify, and takes part in every exchange all the same.
    answers.put((rank, [score(ranks, count) for count in (len(TEXTS), 1)]))
    distributed.destroy_process_group()


@pytest.mark.slow
def test_two_ranks_get_the_scores_and_verdicts_of_one(tmp_path: Path) -> None:
    alone = [score(ALONE, count) for count in (len(TEXTS), 1)]
    assert alone[0].rule == ["correct", "incorrect", "correct", "unparsable", "correct"]
    found = run_on_two(score_as, tmp_path)
    for rank in (0, 1):
        for own, expected in zip(found[rank], alone, strict=True):
            assert (own.rule, own.judge) == (expected.rule, expected.judge)
            assert own.verify_rm == pytest.approx(expected.verify_rm, rel=1e-5)
