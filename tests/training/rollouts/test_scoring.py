"""Rewards of rollouts: the rule verifier works beside VerifyRM, and both say what they say alone."""

import threading
from collections.abc import Sequence

import pytest

from cooper_rl.engines.base import Generation
from cooper_rl.errors import CooperError, TrainingError
from cooper_rl.models.verify_rm import VerifyItem
from cooper_rl.schema.data import Problem
from cooper_rl.training.rollout import RolloutGroup, score_rollouts
from cooper_rl.verdicts.answers.verify import AnswerCheck
from cooper_rl.verdicts.verifier import AnswerItem

TEXTS = ("#### 10", "#### 12", "The answer is \\boxed{\\frac{20}{2}}.", "I do not know.")
WAIT_SECONDS = 60


def groups() -> list[RolloutGroup]:
    made = (Generation((), (), "stop"),) * len(TEXTS)
    return [
        RolloutGroup(
            Problem(id=name, source="t", question=f"{name}?", reference_answer="10"), (1,), made, TEXTS
        )
        for name in "ab"
    ]


class WaitingVerifier:
    """Gives its verdicts only once VerifyRM has begun to score."""

    def __init__(self) -> None:
        self.has_scored = threading.Event()

    def verify(self, items: Sequence[AnswerItem]) -> list[AnswerCheck]:
        assert self.has_scored.wait(WAIT_SECONDS), "VerifyRM waited for the verdicts"
        return [AnswerCheck("correct", "it says so") for _ in items]

    def close(self) -> None:
        pass


class BrokenVerifier:
    """A verifier whose workers are gone."""

    def verify(self, items: Sequence[AnswerItem]) -> list[AnswerCheck]:
        raise CooperError("a rule verifier worker is gone")

    def close(self) -> None:
        pass


def test_both_verifiers_say_beside_each_other_what_they_say_alone(make_verify_rm, rule) -> None:
    verify_rm, drawn = make_verify_rm(0), groups()
    items = [VerifyItem(each.problem.question, "10", text) for each in drawn for text in each.texts]
    alone = verify_rm.score(items, max_tokens_per_batch=512)
    scores = score_rollouts(drawn, verify_rm, rule, max_tokens_per_batch=512)
    assert scores.verify_rm == alone
    assert scores.rule == ["correct", "incorrect", "correct", "unparsable"] * 2
    assert scores.judge is None


def test_verify_rm_scores_while_the_rule_verifier_works(make_verify_rm) -> None:
    verify_rm, verifier = make_verify_rm(0), WaitingVerifier()
    verify_rm.model.register_forward_pre_hook(lambda *_: verifier.has_scored.set())
    verify_rm.model.score.register_forward_pre_hook(lambda *_: verifier.has_scored.set())
    scores = score_rollouts(groups(), verify_rm, verifier, max_tokens_per_batch=512)
    assert scores.rule == ["correct"] * 8


def test_a_verifier_that_cannot_work_ends_the_step(make_verify_rm) -> None:
    with pytest.raises(CooperError, match="a rule verifier worker is gone"):
        score_rollouts(groups(), make_verify_rm(0), BrokenVerifier(), max_tokens_per_batch=512)


def test_a_score_that_is_no_number_ends_the_step_after_the_verdicts(make_verify_rm, rule) -> None:
    verify_rm = make_verify_rm(0)
    verify_rm.model.score.weight.data.fill_(float("nan"))
    with pytest.raises(TrainingError, match="NaN"):
        score_rollouts(groups(), verify_rm, rule, max_tokens_per_batch=512)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("rule_")]
