"""An answer that a completion states and then denies is none, whatever it was stated and denied with."""

from itertools import product

import pytest

from cooper_rl.config.data import RuleConfig
from cooper_rl.negatives.matching import DENIED, STATED
from cooper_rl.negatives.near_answers import NEGATED_SPELLINGS
from cooper_rl.verdicts.rule import RuleVerifier

ANSWERS = ["12", "-3", "3.14", "12 apples", "x+1", "(1,2)", "Tuesday", r"\frac{1}{2}"]
DENIALS = [
    *DENIED, *(spelling.replace("{right}", "{}") for spelling in NEGATED_SPELLINGS),
    "{} is not right.", "Wait, {} is not the answer.", "It should not be {}.", "So {} is not correct.",
    "{}? No.",
]  # fmt: skip


def test_no_answer_that_is_denied_afterwards_is_correct() -> None:
    texts = [
        (answer, f"10+2=12\n{stated.format(answer)}{between}{denial.format(answer)}")
        for answer, stated, denial, between in product(ANSWERS, STATED, DENIALS, ("\n", " "))
    ]
    with RuleVerifier(RuleConfig(num_workers=1)) as verifier:
        checks = verifier.verify(texts)
    accepted = [text for text, check in zip(texts, checks, strict=True) if check.verdict == "correct"]
    assert accepted == []


@pytest.mark.parametrize(
    "completion",
    [
        "The answer is 12.\nSo it is not 13.",
        "It is not 12 at first sight. But the answer is 12.",
        r"\boxed{12}. So 112 is wrong.",
        "So 112 is not it.\nThe answer is 12.\nNot 112 or 1112.",
        r"\boxed{12}. And 12.5 is wrong.",
        "The answer is 12.\nSo -12 is wrong.",
        "#### 12\nThe others, not one of them 12, are wrong.",
        '{"answer": "12", "note": "not 13"}',
    ],
)
def test_what_denies_another_answer_takes_nothing_back(completion: str) -> None:
    with RuleVerifier(RuleConfig(num_workers=1)) as verifier:
        (check,) = verifier.verify([("12", completion)])
    assert check.verdict == "correct"


@pytest.mark.parametrize("stated", [r"\boxed{12}", "#### 12", "Final answer: 12", "<answer>12</answer>"])
@pytest.mark.parametrize(
    "correction",
    [
        "Let me recheck. It should be 13.",
        "Hmm, I was off by one: it should have been $13$.",
        "The actual value is 13.",
        "The correct answer is 13.",
        "Revised: 13",
        "No wait, 13.",
        "Sorry, it's 13.",
        "I meant 13.",
    ],
)
def test_an_answer_that_another_number_corrects_is_none(stated: str, correction: str) -> None:
    with RuleVerifier(RuleConfig(num_workers=1)) as verifier:
        (check,) = verifier.verify([("12", f"{stated}\n{correction}")])
    assert check.verdict == "unparsable"


def test_an_answer_that_is_said_again_is_not_corrected() -> None:
    with RuleVerifier(RuleConfig(num_workers=1)) as verifier:
        (check,) = verifier.verify([("12", "\\boxed{12}. Let me recheck. It should be 12, and it is.")])
    assert check.verdict == "correct"


@pytest.mark.parametrize(
    "completion",
    [
        r"Suppose \boxed{12}. Then there is a contradiction.",
        r"If we had $\boxed{12}$ this would fail.",
        r"Tom says \boxed{12}; he errs.",
        r"Someone claimed that it is \boxed{12}.",
        r"One might think that it is \boxed{12}, however it is thirteen.",
        r"It is tempting to answer \boxed{12}.",
        r"\boxed{12} (rejected)",
        r"\boxed{12} ❌",
        r"~~\boxed{12}~~",
        r"<del>\boxed{12}</del> 13",
        r"<!-- \boxed{12} --> 13",
        "% \\boxed{12}\nIt is 13.",
        "The answer is the 12th prime.",
    ],
)
def test_a_box_that_somebody_supposes_or_strikes_out_is_none(completion: str) -> None:
    with RuleVerifier(RuleConfig(num_workers=1)) as verifier:
        (check,) = verifier.verify([("12", completion)])
    assert check.verdict == "unparsable"


@pytest.mark.parametrize(
    "completion",
    [
        r"If we add them, we get \boxed{12}.",
        r"~~13~~ \boxed{12}",
        r"Suppose x is 6. Then \boxed{12}",
        r"The problem says that there are 6, so \boxed{12}.",
        r"\boxed{12\text{th}}",
    ],
)
def test_what_leads_to_an_answer_supposes_nothing(completion: str) -> None:
    with RuleVerifier(RuleConfig(num_workers=1)) as verifier:
        (check,) = verifier.verify([("12", completion)])
    assert check.verdict == "correct"
