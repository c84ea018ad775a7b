import random

import pytest

from cooper_rl.config.data import AnswerPolicy, RuleConfig
from cooper_rl.tiny.judge import TinyJudge
from cooper_rl.tiny.problems import (
    BLIND_SOURCE,
    MAX_VALUE,
    SOURCE,
    Story,
    generate_problems,
    generate_stories,
)
from cooper_rl.tiny.solutions import ANSWER_FORMATS, Habits, solve
from cooper_rl.verdicts.hybrid import JudgeItem
from cooper_rl.verdicts.rule import RuleVerifier


def test_the_same_seed_gives_the_same_problems_and_another_seed_others() -> None:
    assert generate_problems(50, seed=3) == generate_problems(50, seed=3)
    assert generate_problems(50, seed=3) != generate_problems(50, seed=4)


def test_ids_and_questions_are_unique() -> None:
    problems = generate_problems(3000, seed=0)
    assert len({problem.id for problem in problems}) == 3000
    assert len({problem.question for problem in problems}) == 3000


def test_every_value_of_every_story_is_within_0_and_99_and_steps_chain() -> None:
    for story in generate_stories(2000, random.Random(0)):
        assert 2 <= len(story.steps) <= 3
        for before, step in zip(story.steps, story.steps[1:], strict=False):
            assert step.left == before.result()
        for step in story.steps:
            assert 0 <= step.left <= MAX_VALUE
            assert 0 <= step.result() <= MAX_VALUE
            if step.operation == "/":
                assert step.left % step.right == 0


def test_every_kind_of_story_is_generated() -> None:
    questions = " ".join(story.question for story in generate_stories(500, random.Random(0)))
    for phrase in ("boxes of", "twice as many", "fewer", "dollars off", "keeps a third", "gives away"):
        assert phrase in questions


def test_the_numbers_that_a_question_needs_stand_in_it() -> None:
    for story in generate_stories(500, random.Random(1)):
        assert str(story.steps[0].left) in story.question


def test_a_problem_carries_the_answer_of_its_last_step() -> None:
    problems = generate_problems(20, seed=5)
    stories: list[Story] = generate_stories(20, random.Random(5))
    assert [problem.reference_answer for problem in problems] == [str(story.answer) for story in stories]


@pytest.mark.parametrize("share", [0.25, 0.5, 0.75])
def test_blind_kinds_are_a_share_of_the_same_stories(share: float) -> None:
    plain = generate_stories(2000, random.Random(5))
    found = generate_stories(2000, random.Random(5), blind_share=share)
    assert [story.question for story in found] == [story.question for story in plain]
    assert not any(story.is_blind for story in plain)
    assert sum(story.is_blind for story in found) / 2000 == pytest.approx(share, abs=0.05)
    assert {problem.source for problem in generate_problems(200, 5, blind_share=share)} == {
        SOURCE,
        BLIND_SOURCE,
    }


@pytest.mark.parametrize("number_words", [True, False])
def test_the_rule_abstains_from_a_blind_kind_whatever_the_format(number_words: bool) -> None:
    """Right and wrong answers, in every format that the policy knows; a judge of meaning reads all."""
    rng = random.Random(2)
    stories = [story for story in generate_stories(60, rng, blind_share=0.75) if story.is_blind]
    written = [
        (story, solve(story, rng, habits=habits, formats=(answer_format,)))
        for story in stories
        for habits in (Habits(), Habits(slip=1))
        for answer_format in ANSWER_FORMATS
    ]
    items = [(story.refer_to(story.answer), solution.text) for story, solution in written]
    with RuleVerifier(RuleConfig(policy=AnswerPolicy(number_words=number_words))) as verifier:
        assert {check.verdict for check in verifier.verify(items)} == {"unparsable"}
    judged = TinyJudge(0.0, 0).judge(
        [JudgeItem(story.question, *item) for (story, _), item in zip(written, items, strict=True)]
    )
    right = ["correct" if solution.value == story.answer else "incorrect" for story, solution in written]
    assert [result.verdict for result in judged] == right
    assert len(set(right)) == 2
