"""The texts that the laptop's models of programs learn from; the counterpart of `texts.py`."""

import random
from functools import partial
from typing import Any

from cooper_rl.models.template import Template
from cooper_rl.tiny.tasks import Habits, Task, generate_tasks, slip, solve
from cooper_rl.tiny.texts import Example, Texts, prompted_examples, templated_examples
from cooper_rl.tiny.tokenizer import build_tokenizer

POLICY_HABITS = Habits(slip=0.14, skip=0.1)
"""Leaves the policy right about every other time, with room above for training."""
BACKBONE_HABITS = Habits(slip=0.2, skip=0.1)
"""About half of the solutions are wrong."""
PIECES = (
    "Write f(a, b):", " twice", " three times", " plus", " minus", " a", " b", "return", "def f(a, b):",
    "f = lambda a, b:", "```python", "```", " *", " +", " -", "f(a=", ", b=", ") ==",
)  # fmt: skip
"""Tokens of the tokenizer, beside bytes and numbers."""


def policy_examples(count: int, tokenizer: Any, rng: random.Random) -> list[Example]:
    """Prompts with solutions of mixed quality."""
    tasks = generate_tasks(count, rng)
    texts = [solve(task, rng, habits=POLICY_HABITS).text for task in tasks]
    return prompted_examples([task.question for task in tasks], texts, tokenizer)


def matching_examples(count: int, tokenizer: Any, rng: random.Random, *, template: Template) -> list[Example]:
    """No question: bare expressions with the tests that they pass, or another function's."""
    items: list[tuple[str, str, str]] = []
    verdicts: list[bool] = []
    for task in generate_tasks(count, rng):
        tested = task if rng.random() < 0.5 else _slipped(task, rng)
        items.append(("", tested.tests, task.expression))
        verdicts.append(tested.tests == task.tests)
    return templated_examples(items, verdicts, tokenizer, template, completion_weight=0.0)


def verdict_examples(count: int, tokenizer: Any, rng: random.Random, *, template: Template) -> list[Example]:
    """Whole solutions; solution and verdict are learned."""
    tasks = generate_tasks(count, rng)
    solutions = [solve(task, rng, habits=BACKBONE_HABITS) for task in tasks]
    items = [
        (task.question, task.tests, solution.text) for task, solution in zip(tasks, solutions, strict=True)
    ]
    verdicts = [solution.is_right for solution in solutions]
    return templated_examples(items, verdicts, tokenizer, template, completion_weight=1.0)


def _slipped(task: Task, rng: random.Random) -> Task:
    terms = list(task.terms)
    place = rng.randrange(len(terms))
    terms[place] = slip(terms[place], rng)
    return Task(tuple(terms))


TEXTS = Texts(
    build_tokenizer=partial(build_tokenizer, pieces=PIECES),
    policy_examples=policy_examples,
    matching_examples=matching_examples,
    verdict_examples=verdict_examples,
    domain="programs",
)
