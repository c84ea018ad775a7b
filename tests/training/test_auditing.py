"""What is learned of the rollouts that VerifyRM pays most: from verdicts alone, without any positive."""

from collections.abc import Iterator

import pytest

from cooper_rl.config.data import RuleConfig
from cooper_rl.domains.open import default_domain
from cooper_rl.engines.base import Generation
from cooper_rl.schema.data import Problem, VerifyExample
from cooper_rl.tiny.judge import TinyJudge
from cooper_rl.training.auditing import audit
from cooper_rl.training.rollout import RolloutGroup, Scores
from cooper_rl.verdicts.hybrid import Judge
from cooper_rl.verdicts.rule import RuleVerifier

RIGHT, WORDS, WRONG, LOOP = "#### 10", "The answer is ten.", "#### 12", "18;18+18=18;18+18"

READS_DIGITS_ALONE = {"num_workers": 1, "policy": {"number_words": False}}


@pytest.fixture(scope="module")
def rule() -> Iterator[RuleVerifier]:
    with RuleVerifier(RuleConfig.model_validate(READS_DIGITS_ALONE)) as verifier:
        yield verifier


def labels(
    rule: RuleVerifier, judge: Judge | None, *rollouts: tuple[str, float], count: int = 9
) -> list[tuple[str, int]]:
    """Text and label of what is learned; each text is paid more than the other one of its problem."""
    groups: list[RolloutGroup] = []
    for name, (text, _) in enumerate(rollouts):
        problem = Problem(id=str(name), source="tiny", question=f"{name}: how many?", reference_answer="10")
        groups.append(RolloutGroup(problem, (1,), (Generation((), (), "stop"),) * 2, ("#### 11", text)))
    scores = [score for _, paid in rollouts for score in (0.01, paid)]
    checks = rule.verify([("10", text) for group in groups for text in group.texts])
    seen = Scores(verify_rm=scores, rule=[check.verdict for check in checks])
    found = audit(groups, seen, judge, default_domain(), count)
    assert found.num_unanswered == 0
    assert found.num_judged == (0 if judge is None else min(count, len(rollouts)))
    return [(example.completion, example.label) for example in found.examples]


def test_a_paid_text_that_answers_nothing_is_learned_as_wrong_without_any_positive(
    rule: RuleVerifier,
) -> None:
    assert labels(rule, TinyJudge(0.0, seed=0), (LOOP, 0.9)) == [(LOOP, 0)]


def test_the_judge_says_what_is_right_where_the_rule_abstains(rule: RuleVerifier) -> None:
    assert labels(rule, TinyJudge(0.0, seed=0), (WORDS, 0.9)) == [(WORDS, 1)]
    assert labels(rule, None, (WORDS, 0.9)) == []


def test_the_best_paid_come_first_and_no_more_than_asked_for(rule: RuleVerifier) -> None:
    rollouts = ((RIGHT, 0.5), (WRONG, 0.9), (LOOP, 0.7))
    judge = TinyJudge(0.0, seed=0)
    assert labels(rule, judge, *rollouts) == [(WRONG, 0), (LOOP, 0), (RIGHT, 1)]
    assert labels(rule, judge, *rollouts, count=2) == [(WRONG, 0), (LOOP, 0)]
    assert labels(rule, judge, *rollouts, count=0) == []


def test_the_best_paid_rollout_is_audited_wherever_it_stands_in_its_group(rule: RuleVerifier) -> None:
    """The first of three, the second and the third; the best paid problem comes first."""
    texts = ((WRONG, RIGHT, RIGHT), (RIGHT, f" {WRONG}\n", RIGHT), (WRONG, WRONG, RIGHT))
    scores = [0.7, 0.1, 0.2, 0.1, 0.8, 0.2, 0.2, 0.1, 0.9]
    groups = [
        RolloutGroup(
            Problem(id=str(number), source="tiny", question=f"{number}: how many?", reference_answer="10"),
            (1,),
            (Generation((), (), "stop"),) * 3,
            three,
        )
        for number, three in enumerate(texts)
    ]
    checks = rule.verify([("10", text) for three in texts for text in three])
    seen = Scores(verify_rm=scores, rule=[check.verdict for check in checks])
    assert audit(groups, seen, None, default_domain(), 3).examples == [
        VerifyExample(
            question=f"{number}: how many?",
            reference_answer="10",
            completion=text,
            label=label,
            source="audit",
        )
        for number, text, label in ((2, RIGHT, 1), (1, WRONG, 0), (0, WRONG, 0))
    ]
