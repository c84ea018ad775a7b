"""What VerifyRM is shown before whole completions: generated pairs, answer spans, swapped references."""

import random
import re

from cooper_rl.config.models import VerifyRMConfig
from cooper_rl.schema.data import VerifyExample
from cooper_rl.training.fitting.curriculum import plan_lessons, swap_references
from cooper_rl.verdicts.answers.matching import matching_examples
from cooper_rl.verdicts.answers.verify import is_another_answer

ROWS = [
    VerifyExample(question="Q1", reference_answer="12", completion="3*4=12\n#### 12", label=1),
    VerifyExample(question="Q2", reference_answer="7", completion="So the answer is 9", label=0),
    VerifyExample(question="Q3", reference_answer="5", completion="", label=0),
]


def test_a_swapped_reference_turns_the_label_where_it_can() -> None:
    """The correct one gets another answer, the wrong one its own; an empty or rambling one states none."""
    rambling = ROWS[1].model_copy(update={"completion": "#### " + "and 9 " * 20})
    swapped = swap_references([*ROWS, rambling], random.Random(0))
    assert [(row.question, row.label) for row in swapped] == [("Q1", 0), ("Q2", 1)]
    assert swapped[0].reference_answer in {"5", "7"}
    assert swapped[1].reference_answer == "9"


def test_swapped_references_are_learned_beside_the_examples() -> None:
    config = VerifyRMConfig(swapped_references=True)
    (lesson,) = plan_lessons(ROWS, config=config, is_from_scratch=True, seed=0)
    assert lesson.examples[: len(ROWS)] == ROWS
    assert [(row.question, row.label) for row in lesson.examples[len(ROWS) :]] == [("Q1", 0), ("Q2", 1)]


def test_one_reference_answer_alone_cannot_be_swapped() -> None:
    assert swap_references(ROWS[:1], random.Random(0)) == []


def test_an_equal_answer_in_another_spelling_does_not_turn_the_label() -> None:
    halves = [
        VerifyExample(question=answer, reference_answer=answer, completion=f"#### {answer}", label=1)
        for answer in (r"\frac12", "0.5", r"50\%")
    ]
    assert swap_references(halves, random.Random(0)) == []


def test_the_papers_recipe_has_one_lesson() -> None:
    config = VerifyRMConfig()
    (lesson,) = plan_lessons(ROWS, config=config, is_from_scratch=True, seed=0)
    assert (lesson.examples, lesson.config) == (ROWS, config)


def test_a_scratch_model_gets_its_lessons_in_order() -> None:
    config = VerifyRMConfig.model_validate({"scratch": {"num_matching_examples": 9}, "answer_spans": [2, 5]})
    lessons = plan_lessons(ROWS, config=config, is_from_scratch=True, seed=0)
    names = ["matching", "last 2 characters", "last 5 characters", "completions"]
    assert [lesson.name for lesson in lessons] == names
    matching, spans, longer, _ = lessons
    assert (len(matching.examples), matching.config.num_epochs) == (9, 1)
    assert [row.completion for row in spans.examples] == ["12", " 9", ""]
    assert {row.question for row in spans.examples} == {""}
    assert spans.config.num_epochs == 1
    assert all(
        row.completion.endswith(short.completion)
        for row, short in zip(longer.examples, spans.examples, strict=True)
    )
    with_backbone = plan_lessons(ROWS, config=config, is_from_scratch=False, seed=0)
    assert [lesson.name for lesson in with_backbone] == names[1:]


def test_generated_pairs_are_balanced_and_labelled_by_what_they_state() -> None:
    found = matching_examples(400, random.Random(1))
    assert 160 < sum(row.label for row in found) < 240
    for row in found:
        if row.label == 1:
            assert row.reference_answer.removesuffix(".0") in row.completion
        elif row.completion.rsplit("\n", 1)[-1].startswith(("A:", "####")):
            assert row.completion.split(" ", 1)[-1] != row.reference_answer


def test_a_generated_text_stands_beside_an_equal_and_another_reference() -> None:
    """Of 600 pairs a few decimals would be drawn with a 0 behind them, and a few formulas with a `.0`."""
    found = matching_examples(1200, random.Random(2))
    for equal, other in zip(found[::2], found[1::2], strict=True):
        assert equal.completion == other.completion
        assert is_another_answer(other.reference_answer, equal.reference_answer)
        assert equal.reference_answer in equal.completion or re.fullmatch(r"-?\d+\.0", equal.reference_answer)
        assert (equal.label, other.label) == (1, 0)


def test_canaries_of_the_training_problems_are_learned_as_wrong() -> None:
    config = VerifyRMConfig(num_canary_problems=2)
    (lesson,) = plan_lessons(ROWS, config=config, is_from_scratch=True, seed=0)
    added = lesson.examples[len(ROWS) :]
    assert {row.label for row in added} == {0}
    assert len({row.question for row in added}) == 2
    assert {"canary:empty", "canary:injected_instructions"} <= {row.source for row in added}


def test_generated_pairs_are_the_same_for_the_same_seed() -> None:
    assert matching_examples(20, random.Random(3)) == matching_examples(20, random.Random(3))
