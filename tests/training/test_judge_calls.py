"""The judge's calls of a step: for rewards, pairs and audits, counted against what the judge was asked."""

from dataclasses import replace

import pytest

from cooper_rl.schema.data import Problem
from cooper_rl.schema.step_metrics import JudgeMetrics, StepMetrics
from cooper_rl.tiny.judge import TinyJudge
from cooper_rl.training.pairing import PairMaker
from cooper_rl.training.step import run_step
from tests.cooper_config import cooper_config
from tests.training.scripted import scripted_trainer

RIGHT, WRONG, OTHER = "7-2=5;5*2=10. #### 10", "7-2=5;5*2=12. #### 12", "7-2=5;5*2=14. #### 14"
PROBLEMS = [
    Problem(id=name, source="t", question=f"Tom has 7. {name}?", reference_answer="10") for name in "abc"
]


class CountingJudge(TinyJudge):
    """The laptop's exact judge, which also counts what it was asked."""

    num_asked = 0

    def judge(self, items):
        self.num_asked += len(items)
        return super().judge(items)


def step_of(
    make_policy, make_verify_rm, rule, script, *, has_judge: bool = True, **values
) -> tuple[StepMetrics, int]:
    """One step on the first two problems, and how many completions the judge was asked about."""
    negatives = {"assistant": 0, "rollout": 1, "perturb": 1}
    config = cooper_config(
        **({"pairs__negatives": negatives, "pairs__per_problem": 2, "pairs__assistant": None} | values),
        group_size=4,
        judge={"tiny_error_rate": 0} if has_judge else None,
    )
    judge = CountingJudge(0.0, 0) if has_judge else None
    trainer = scripted_trainer(
        make_policy,
        make_verify_rm(0),
        PairMaker(config, rule, None, judge),
        dict(zip(PROBLEMS, script, strict=True)),
    )
    trainer = replace(trainer, reward=replace(trainer.reward, judge=judge), pool=PROBLEMS)
    return run_step(trainer, 1, PROBLEMS[:2]).metrics, judge.num_asked if judge else 0


MIXED = [[RIGHT, WRONG, OTHER, WRONG], [WRONG] * 4, [RIGHT, WRONG, WRONG, WRONG]]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, JudgeMetrics(calls=2, pairs=2)),
        ({"reward__num_audited_rollouts": 2}, JudgeMetrics(calls=4, pairs=2, audits=2)),
        ({"reward__kind": "judge"}, JudgeMetrics(calls=8, rewards=8)),
        ({"reward__kind": "judge", "max_refills": 1}, JudgeMetrics(calls=12, rewards=12)),
    ],
    ids=["pairs", "audits", "rewards", "refills"],
)
def test_calls_are_what_the_judge_was_asked(
    make_policy, make_verify_rm, rule, values: dict, expected: JudgeMetrics
) -> None:
    """Problem a has two wrong texts, one of them twice, that may be negatives; b has no right one.

    As the reward the judge reads all eight, and VerifyRM learns nothing. A refill replaces b, whose rollouts
    are all wrong, by c: four more rewards.
    """
    metrics, num_asked = step_of(make_policy, make_verify_rm, rule, MIXED, **values)
    assert metrics.judge == expected
    assert metrics.judge.calls == num_asked


def test_without_a_judge_a_step_says_none_were_made(make_policy, make_verify_rm, rule) -> None:
    metrics, _ = step_of(make_policy, make_verify_rm, rule, MIXED, has_judge=False)
    assert metrics.judge == JudgeMetrics(calls=0)
    assert metrics.flat()["judge/calls"] == 0


def test_a_version_that_did_not_count_is_told_from_a_step_without_calls() -> None:
    flat = {"step": 1, "rollout/verify_rm_reward": 0.5, "rollout/rule_accuracy": 0.5}
    assert StepMetrics.from_flat(flat).judge.calls is None
    assert StepMetrics.from_flat(flat | {"judge/calls": 0}).judge.calls == 0
