"""Right answers that are stated, and that are denied."""

import random

from cooper_rl.negatives.denials import DENIED, STATED, TEXTS_PER_PROBLEM, deny_answers
from cooper_rl.negatives.near_answers import NEGATED_SPELLINGS
from cooper_rl.schema.data import VerifyExample
from cooper_rl.verdicts.answers.verify import verify_answer

ROWS = [
    VerifyExample(question=f"Q{number}", reference_answer=str(number), completion=text, label=label)
    for number in range(10, 30)
    for text, label in ((f"So it is {number}.", 1), ("So it is 7.", 0))
    if label == 0 or number % 2
]
"""Every second question has a right completion."""


def test_every_problem_has_as_many_statements_as_short_denials() -> None:
    rows = deny_answers(ROWS, max_problems=6, rng=random.Random(0))
    assert len({row.question for row in rows}) == 6
    short = [row for row in rows if "\n" not in row.completion]
    assert sum(row.label for row in short) == len(short) / 2 == 6 * TEXTS_PER_PROBLEM
    assert all(row.reference_answer in row.completion for row in rows)
    whole = [row for row in rows if "\n" in row.completion]
    assert {int(row.question[1:]) % 2 for row in whole} == {1}
    assert all(row.label == 0 and row.completion.startswith("So it is") for row in whole)


def test_the_rule_verifier_reads_no_denial_as_the_answer() -> None:
    for spelling in DENIED:
        assert verify_answer("12", spelling.format("12")).verdict != "correct", spelling
    for spelling in STATED:
        assert verify_answer("12", spelling.format("12")).verdict != "incorrect", spelling


def test_the_canary_of_denials_has_words_of_its_own() -> None:
    """Else it would measure whether these few texts are known."""
    learned = {spelling.format("12").casefold() for spelling in DENIED}
    assert learned.isdisjoint(spelling.format(right="12").casefold() for spelling in NEGATED_SPELLINGS)
