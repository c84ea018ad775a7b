"""The rule verifier against real labelled completions, which are outside the repository."""

import pytest

from benchmarks._labelled import Case, find_data, read_cases
from cooper_rl.config.data import AnswerPolicy, RuleConfig
from cooper_rl.verdicts.answers.verify import AnswerItem
from cooper_rl.verdicts.rule import RuleVerifier

DATA = find_data()
pytestmark = [
    pytest.mark.real_data,
    pytest.mark.skipif(DATA is None, reason="no ../shared/data and no COOPER_REAL_DATA on this machine"),
]


def judge(cases: list[Case], policy: AnswerPolicy) -> list[str]:
    with RuleVerifier(RuleConfig(policy=policy, num_workers=2, timeout_seconds=2)) as verifier:
        items = [
            AnswerItem(case.reference_answer, case.completion, case.question, case.finish_reason)
            for case in cases
        ]
        return [check.verdict for check in verifier.verify(items)]


def test_the_rule_verifier_is_perfect_on_gsm8k() -> None:
    assert DATA is not None
    cases = read_cases(DATA, "gsm8k_ems")
    verdicts = judge(cases, AnswerPolicy())
    assert len(cases) == 2640
    wrong = [
        case.id
        for case, verdict in zip(cases, verdicts, strict=True)
        if (verdict == "correct") != case.is_correct
    ]
    assert wrong == []


def test_every_nasty_pair_that_has_one_right_verdict_gets_it() -> None:
    assert DATA is not None
    cases = [case for case in read_cases(DATA, "nasty_pairs") if not case.is_policy_dependent]
    verdicts = judge(cases, AnswerPolicy())
    wrong = [
        case.id
        for case, verdict in zip(cases, verdicts, strict=True)
        if (verdict == "correct") != case.is_correct
    ]
    assert wrong == ["nasty-231"]  # a number after 66,666 times the word `token`: no sentence states it


def test_precision_and_recall_hold_where_answers_are_hard() -> None:
    assert DATA is not None
    cases = read_cases(DATA, "hardverify")
    accepted = [verdict == "correct" for verdict in judge(cases, AnswerPolicy())]
    true_positive = sum(case.is_correct and is_in for case, is_in in zip(cases, accepted, strict=True))
    positive = sum(case.is_correct for case in cases)
    assert true_positive / sum(accepted) >= 0.98
    assert 2 * true_positive / (sum(accepted) + positive) >= 0.85
