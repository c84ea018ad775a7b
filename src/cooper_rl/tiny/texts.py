"""The texts that the laptop's models learn from, as token ids with the weight of each token in the loss.

The policy and the samplers learn to answer prompts the way the solvers of `solutions.py` do. VerifyRM's
backbone learns what a pre-trained model brings along: that `10`, `ten` and `\\boxed{10}` mean the same.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

from cooper_rl.config import names
from cooper_rl.models.template import Template
from cooper_rl.tiny.problems import MAX_VALUE, generate_stories
from cooper_rl.tiny.solutions import Habits, Solution, slip, solve, state_answer
from cooper_rl.tiny.tokenizer import build_tokenizer

POLICY_HABITS = Habits(slip=0.03, misread=0.04, skip=0.03, misstate=0.03)
"""Leaves the policy between 30 and 60 % accuracy when it is sampled, with room above for training."""
BLIND_POLICY_HABITS = POLICY_HABITS._replace(skip=0.45)
"""On blind kinds of problems the policy leaves out steps, so that there is something to learn on them too."""
BACKBONE_HABITS = Habits(slip=0.1, misread=0.1, skip=0.06, misstate=0.06)
"""About half of the solutions are wrong."""
VERDICT_WEIGHT = 50.0
"""The verdict's weight in the loss of the backbone, against 1 for every token of the completion."""
BATCHES_SORTED_TOGETHER = 16


@dataclass(frozen=True)
class Example:
    """One text."""

    token_ids: list[int]
    weights: list[float]
    """One per token id: its weight as a target; 0 is not learned."""


class MakeTemplated(Protocol):
    """Examples in VerifyRM's template, each with its verdict."""

    def __call__(
        self, count: int, tokenizer: Any, rng: random.Random, *, template: Template
    ) -> list[Example]: ...


class Texts(NamedTuple):
    """The texts that a world's models learn from: functions that another process can import by name."""

    build_tokenizer: Callable[[], Any]
    """The tokenizer of all models of the world, with a chat template."""
    policy_examples: Callable[[int, Any, random.Random], list[Example]]
    """Prompts with solutions of mixed quality."""
    matching_examples: MakeTemplated
    """Bare answers, for VerifyRM's backbone."""
    verdict_examples: MakeTemplated
    """Whole solutions, for VerifyRM's backbone."""
    domain: str = names.DOMAINS.names[0]
    """Says what VerifyRM reads of a completion."""


def policy_examples(
    count: int, tokenizer: Any, rng: random.Random, *, blind_share: float = 0.0
) -> list[Example]:
    """Prompts with solutions of mixed quality; the solution and its end token are learned."""
    stories = generate_stories(count, rng, blind_share=blind_share)
    habits = {False: POLICY_HABITS, True: BLIND_POLICY_HABITS}
    solutions = [solve(story, rng, habits=habits[story.is_blind]).text for story in stories]
    return prompted_examples([story.question for story in stories], solutions, tokenizer)


def prompted_examples(questions: Sequence[str], solutions: Sequence[str], tokenizer: Any) -> list[Example]:
    """Questions through the chat template; the solution and its end token are learned."""
    conversations = [[{"role": "user", "content": question}] for question in questions]
    prompts = tokenizer.apply_chat_template(conversations, add_generation_prompt=True, return_dict=True)
    completions = tokenizer(solutions)["input_ids"]
    return [
        _example(prompt, [*completion, tokenizer.eos_token_id])
        for prompt, completion in zip(prompts["input_ids"], completions, strict=True)
    ]


def matching_examples(
    count: int, tokenizer: Any, rng: random.Random, *, template: Template, blind_share: float = 0.0
) -> list[Example]:
    """VerifyRM's template with a bare closing statement and no question; half of the answers match."""
    items: list[tuple[str, str, str]] = []
    verdicts: list[bool] = []
    for story in generate_stories(count, rng, blind_share=blind_share):
        solution = solve(story, rng, habits=BACKBONE_HABITS)
        reference_answer = _reference_for(solution, rng)
        closing = state_answer(story, solution.value, answer_format=solution.answer_format)
        items.append(("", story.refer_to(reference_answer), closing))
        verdicts.append(reference_answer == solution.value)
    return templated_examples(items, verdicts, tokenizer, template, completion_weight=0.0)


def verdict_examples(
    count: int, tokenizer: Any, rng: random.Random, *, template: Template, blind_share: float = 0.0
) -> list[Example]:
    """VerifyRM's template with whole solutions; solution and verdict are learned."""
    stories = generate_stories(count, rng, blind_share=blind_share)
    solutions = [solve(story, rng, habits=BACKBONE_HABITS) for story in stories]
    items = [
        (story.question, story.refer_to(story.answer), solution.text)
        for story, solution in zip(stories, solutions, strict=True)
    ]
    verdicts = [solution.value == story.answer for story, solution in zip(stories, solutions, strict=True)]
    return templated_examples(items, verdicts, tokenizer, template, completion_weight=1.0)


def stream_batches(
    make: Callable[[int], list[Example]], num_batches: int, *, batch_size: int, rng: random.Random
) -> Iterator[list[Example]]:
    """Batches of similar length, in random order within a stretch of 16, so that little is padded.

    Args:
        make: Makes so many further examples.
        num_batches: How many batches to yield.
        batch_size: Examples in each.
        rng: Shuffles the batches.
    """
    for done in range(0, num_batches, BATCHES_SORTED_TOGETHER):
        count = min(BATCHES_SORTED_TOGETHER, num_batches - done)
        ordered = sorted(make(count * batch_size), key=lambda example: len(example.token_ids))
        batches = [ordered[place : place + batch_size] for place in range(0, len(ordered), batch_size)]
        rng.shuffle(batches)
        yield from batches


def _reference_for(solution: Solution, rng: random.Random) -> int:
    kind = rng.random()
    if kind < 0.5:
        return solution.value
    return slip(solution.value, rng) if kind < 0.75 else rng.randint(0, MAX_VALUE)


def templated_examples(
    items: Sequence[tuple[str, str, str]],
    verdicts: Sequence[bool],
    tokenizer: Any,
    template: Template,
    *,
    completion_weight: float,
) -> list[Example]:
    """The verdict follows the template's end, where VerifyRM's one logit will be read."""
    yes, no = tokenizer.convert_tokens_to_ids([" yes", " no"])
    examples: list[Example] = []
    for token_ids, verdict in zip(template.encode(items), verdicts, strict=True):
        start = token_ids.index(template.separators.completion) + 1
        weights = [0.0] * start + [completion_weight] * (len(token_ids) - start) + [VERDICT_WEIGHT]
        examples.append(Example([*token_ids, yes if verdict else no], weights))
    return examples


def _example(prompt: list[int], completion: list[int]) -> Example:
    return Example([*prompt, *completion], [0.0] * len(prompt) + [1.0] * len(completion))


def story_texts(blind_share: float) -> Texts:
    """The texts of the world of word problems, with a share of blind kinds."""
    return Texts(
        build_tokenizer,
        partial(policy_examples, blind_share=blind_share),
        partial(matching_examples, blind_share=blind_share),
        partial(verdict_examples, blind_share=blind_share),
    )


STORY_TEXTS = story_texts(0.0)
