import random

import pytest

from cooper_rl.tiny.judge import judge_exactly
from cooper_rl.tiny.meaning import spell
from cooper_rl.tiny.problems import Step, Story, generate_stories
from cooper_rl.tiny.solutions import (
    ANSWER_FORMATS,
    Habits,
    solve,
    state_answer,
)
from cooper_rl.verdicts.hybrid import JudgeItem

STORY = Story(
    question="Tom has 7 apples, gives away 2, then doubles them. How many apples does Tom have?",
    steps=(Step(7, "-", 2), Step(5, "*", 2)),
    subject="Tom has",
    unit="apples",
)


def test_a_solution_shows_its_steps_and_then_the_answer_in_the_asked_format() -> None:
    written = [
        solve(STORY, random.Random(0), habits=Habits(), formats=(kind,)).text for kind in ANSWER_FORMATS
    ]
    assert written == [
        "7-2=5;5*2=10.\n#### 10",
        "7-2=5;5*2=10.\n\\boxed{10}",
        "7-2=5;5*2=10.\nThe answer is 10.",
        "7-2=5;5*2=10.\n\\boxed{ten}",
        "7-2=5;5*2=10.\nThe answer is ten.",
        "7-2=5;5*2=10.\nTom has ten apples.",
    ]


def test_half_of_the_formats_state_the_answer_in_words_that_no_rule_reads() -> None:
    in_digits = [kind for kind in ANSWER_FORMATS if "10" in state_answer(STORY, 10, answer_format=kind)]
    assert in_digits == ["hash", "boxed", "sentence"]
    assert len(in_digits) * 2 == len(ANSWER_FORMATS)


def test_a_solver_without_bad_habits_is_always_right() -> None:
    rng = random.Random(0)
    for story in generate_stories(300, rng):
        assert solve(story, rng, habits=Habits()).value == story.answer


@pytest.mark.parametrize("habit", ["slip", "misstate"])
def test_a_solver_that_always_slips_at_the_end_is_wrong(habit: str) -> None:
    rng = random.Random(0)
    for story in generate_stories(300, rng):
        solution = solve(story, rng, habits=Habits(**{habit: 1.0}))
        if habit == "misstate":
            assert solution.value != story.answer
        else:
            assert f"={story.answer}." not in solution.text or solution.value == story.answer


def test_a_skipped_step_is_missing_from_the_chain() -> None:
    solution = solve(STORY, random.Random(0), habits=Habits(skip=1.0), formats=("hash",))
    assert solution.text == "7-2=5.\n#### 5"


def test_the_stated_value_is_what_the_text_means() -> None:
    rng = random.Random(2)
    habits = Habits(slip=0.2, misread=0.2, skip=0.1, misstate=0.1)
    for story in generate_stories(500, rng):
        solution = solve(story, rng, habits=habits)
        item = JudgeItem(story.question, str(solution.value), solution.text)
        assert judge_exactly(item).verdict == "correct"


def test_only_0_to_99_can_be_spelled() -> None:
    assert [spell(number) for number in (0, 13, 20, 42, 99)] == [
        "zero",
        "thirteen",
        "twenty",
        "forty-two",
        "ninety-nine",
    ]
    with pytest.raises(ValueError, match=r"100 is outside 0\.\.99"):
        spell(100)
