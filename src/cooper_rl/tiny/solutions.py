"""Programmatic solvers of the laptop world: chains of thought of mixed quality in many answer formats.

The models are trained on what these write, so the solvers' habits (a slip in a step, a misread number,
a skipped step, another number in the closing sentence) become the models' habits, in the proportions of
`Habits`. About half of the formats are beyond the rule verifier, which reads digits and no number words.
"""

import random
from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

from cooper_rl.tiny.meaning import spell
from cooper_rl.tiny.problems import MAX_VALUE, Operation, Step, Story

AnswerFormat = Literal["hash", "boxed", "sentence", "boxed_word", "sentence_word", "story_word"]
ANSWER_FORMATS: tuple[AnswerFormat, ...] = get_args(AnswerFormat)

SLIPS = (-10, -2, -1, 1, 2, 10)


class Habits(NamedTuple):
    """Probabilities that a solver goes wrong."""

    slip: float = 0.0
    """Rate of a slip in each step: the result is off by 1, 2 or 10."""
    misread: float = 0.0
    """Once in a solution: a number or an operation of the question is taken for another."""
    skip: float = 0.0
    """Once in a solution: one step is left out."""
    misstate: float = 0.0
    """Rate of a closing sentence that names another number than the steps gave."""


class Solution(NamedTuple):
    """A written solution and the number that it states."""

    text: str
    value: int
    answer_format: AnswerFormat


def solve(
    story: Story, rng: random.Random, *, habits: Habits, formats: Sequence[AnswerFormat] = ANSWER_FORMATS
) -> Solution:
    """The text of a solver with these habits about a story, in one of `formats` (drawn uniformly)."""
    steps = list(story.steps)
    if rng.random() < habits.misread:
        place = rng.randrange(len(steps))
        steps[place] = _misread(steps[place], rng, is_first=place == 0)
    if len(steps) > 1 and rng.random() < habits.skip:
        del steps[rng.randrange(1, len(steps))]
    equations: list[str] = []
    value = steps[0].left
    for step in steps:
        left, value = value, _clip(step._replace(left=value).result())
        if rng.random() < habits.slip:
            value = slip(value, rng)
        equations.append(f"{left}{step.operation}{step.right}={value}")
    if rng.random() < habits.misstate:
        value = slip(value, rng)
    answer_format = formats[rng.randrange(len(formats))]
    closing = state_answer(story, value, answer_format=answer_format)
    return Solution(f"{';'.join(equations)}.\n{closing}", value, answer_format)


def state_answer(story: Story, value: int, *, answer_format: AnswerFormat) -> str:
    """The closing statement alone."""
    match answer_format:
        case "hash":
            return f"#### {value}"
        case "boxed":
            return f"\\boxed{{{value}}}"
        case "sentence":
            return f"The answer is {value}."
        case "boxed_word":
            return f"\\boxed{{{spell(value)}}}"
        case "sentence_word":
            return f"The answer is {spell(value)}."
        case "story_word":
            return f"{story.subject} {spell(value)} {story.unit}."


def slip(value: int, rng: random.Random) -> int:
    """Another value, off by 1, 2 or 10 and within 0..99."""
    return rng.choice([value + change for change in SLIPS if 0 <= value + change <= MAX_VALUE])


def _misread(step: Step, rng: random.Random, *, is_first: bool) -> Step:
    if is_first and rng.random() < 0.3:
        return step._replace(left=slip(step.left, rng))
    if rng.random() < 0.5:
        return step._replace(right=max(1, step.right + rng.choice((-2, -1, 1, 2))))
    swapped: dict[Operation, Operation] = {"+": "-", "-": "+", "*": "+", "/": "-"}
    return step._replace(operation=swapped[step.operation])


def _clip(value: int) -> int:
    return min(max(value, 0), MAX_VALUE)
