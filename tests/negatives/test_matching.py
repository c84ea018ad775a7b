"""Generated texts: what states an answer, what states another one, and what evades it."""

import random
import re

from cooper_rl.config.data import RuleConfig
from cooper_rl.negatives.matching import DENIED, STATED, matching_examples
from cooper_rl.negatives.near_answers import NEGATED_SPELLINGS
from cooper_rl.schema.data import VerifyExample
from cooper_rl.verdicts.answers.verify import is_another_answer, verify_answer
from cooper_rl.verdicts.rule import RuleVerifier


def test_generated_pairs_are_balanced_and_labelled_by_what_they_state() -> None:
    found = matching_examples(400, random.Random(1))
    assert [row.label for row in found] == [1, 0] * 200
    for right, wrong in zip(found[::2], found[1::2], strict=True):
        assert right.reference_answer.removesuffix(".0") in right.completion
        states = wrong.completion == right.completion
        if states and wrong.completion.rsplit("\n", 1)[-1].startswith(("A:", "####")):
            assert wrong.completion.split(" ", 1)[-1] != wrong.reference_answer


def test_a_generated_text_stands_beside_an_equal_and_another_reference() -> None:
    """Of 400 pairs a few decimals would be drawn with a 0 behind them, and a few formulas with a `.0`."""
    found = matching_examples(1200, random.Random(2))
    pairs = list(zip(found[::2], found[1::2], strict=True))
    of_one_text = [pair for pair in pairs if pair[0].completion == pair[1].completion]
    assert 360 < len(of_one_text) < 440
    for equal, other in of_one_text:
        assert is_another_answer("", equal.reference_answer, other.reference_answer)
        assert equal.reference_answer in equal.completion or re.fullmatch(r"-?\d+\.0", equal.reference_answer)
        assert (equal.label, other.label) == (1, 0)


def test_the_rule_verifier_contradicts_hardly_any_matching_example() -> None:
    examples = matching_examples(800, random.Random(0))
    assert [example.label for example in examples] == [1, 0] * 400
    with RuleVerifier(RuleConfig(num_workers=1)) as verifier:
        checks = verifier.verify([(example.reference_answer, example.completion) for example in examples])
    contradicted = [
        example
        for example, check in zip(examples, checks, strict=True)
        if check.verdict == ("incorrect" if example.label else "correct")
    ]
    assert len(contradicted) <= 4, contradicted


def test_the_rule_verifier_reads_no_denial_as_the_answer() -> None:
    for spelling in DENIED:
        assert verify_answer("12", spelling.format("12")).verdict != "correct", spelling
    for spelling in STATED:
        assert verify_answer("12", spelling.format("12")).verdict != "incorrect", spelling


def test_the_canary_of_denials_has_words_of_its_own() -> None:
    """Else it would measure whether these few texts are known."""
    learned = {spelling.format("12").casefold() for spelling in DENIED}
    assert learned.isdisjoint(spelling.format(right="12").casefold() for spelling in NEGATED_SPELLINGS)


def test_a_right_solution_goes_on_and_stands_by_its_answer_or_evades_it() -> None:
    row = VerifyExample(question="3 * 4?", reference_answer="12", completion="3 * 4 = 12\n#### 12\n", label=1)
    found = matching_examples(2000, random.Random(5), [row])
    continued = [example for example in found if example.question]
    assert 400 < len(continued) < 600
    assert [example.label for example in continued] == [1, 0] * (len(continued) // 2)
    assert all(example.completion.startswith("3 * 4 = 12\n#### 12\n") for example in continued)
    verdicts = [verify_answer("12", example.completion.split("\n", 2)[2]).verdict for example in continued]
    assert "incorrect" not in verdicts[::2]
    assert "correct" not in verdicts[1::2]
