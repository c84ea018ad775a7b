import random

from cooper_rl.tiny.problems import MAX_VALUE, Story, generate_problems, generate_stories


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
