"""Rewards of rollouts: the rule verifier works beside VerifyRM, and both say what they say alone."""

import threading
from collections.abc import Sequence

import pytest

from cooper_rl.engines.base import Generation
from cooper_rl.errors import CooperError, TrainingError
from cooper_rl.models.verify_rm import VerifyItem
from cooper_rl.schema.data import Problem, RolloutSample
from cooper_rl.training.rollout import RolloutGroup, Scores, sample_rollouts, score_rollouts
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


class NotingVerifier(WaitingVerifier):
    """Also keeps what it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.has_scored.set()
        self.asked: list[AnswerItem] = []

    def verify(self, items: Sequence[AnswerItem]) -> list[AnswerCheck]:
        self.asked += items
        return super().verify(items)


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


def test_the_rule_verifier_hears_the_question_and_how_each_completion_ended(make_verify_rm) -> None:
    problem = Problem(id="a", source="t", question="How many?", reference_answer="10")
    ended, cut = Generation((), (), "stop"), Generation((), (), "length")
    verifier = NotingVerifier()
    group = RolloutGroup(problem, (1,), (ended, cut), ("#### 10", "#### 1"))
    score_rollouts([group], make_verify_rm(0), verifier, max_tokens_per_batch=512)
    assert verifier.asked == [
        AnswerItem("10", "#### 10", "How many?", "stop"),
        AnswerItem("10", "#### 1", "How many?", "length"),
    ]


def test_of_every_problem_the_best_paid_rollout_is_kept_with_what_was_said_of_it() -> None:
    """Three problems, of which the last one is paid most; the second rollout of each is the better."""
    drawn = [
        RolloutGroup(
            Problem(id=name, source="t", question=f"{name}?", reference_answer="10"),
            (1,),
            (Generation((), (), "stop"),) * 2,
            (f"{name} first", f"{name} second"),
        )
        for name in "abc"
    ]
    scores = Scores(
        verify_rm=[0.1, 0.2, 0.3, 0.4, 0.5, 0.6],
        rule=["correct", "incorrect", "correct", "unparsable", "incorrect", "correct"],
    )
    found = sample_rollouts(drawn, scores, [0.0, 0.3, 0.1, 0.2, 0.4, 0.9], step=7, count=2)
    assert found == [
        RolloutSample(
            step=7, problem_id=name, question=f"{name}?", reference_answer="10", completion=f"{name} second",
            reward=reward, score=score, rule=verdict,
        )
        for name, reward, score, verdict in (("c", 0.9, 0.6, "correct"), ("a", 0.3, 0.2, "incorrect"))
    ]  # fmt: skip


def test_a_verifier_that_cannot_work_ends_the_step(make_verify_rm) -> None:
    with pytest.raises(CooperError, match="a rule verifier worker is gone"):
        score_rollouts(groups(), make_verify_rm(0), BrokenVerifier(), max_tokens_per_batch=512)


def test_a_score_that_is_no_number_ends_the_step_after_the_verdicts(make_verify_rm, rule) -> None:
    verify_rm = make_verify_rm(0)
    verify_rm.model.score.weight.data.fill_(float("nan"))
    with pytest.raises(TrainingError, match="NaN"):
        score_rollouts(groups(), verify_rm, rule, max_tokens_per_batch=512)
    # The threads of a pool, "rule_verifier_…", live as long as their verifier.
    assert "rule_0" not in [thread.name for thread in threading.enumerate()]
