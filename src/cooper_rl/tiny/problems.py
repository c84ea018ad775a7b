"""The laptop world's problems: seeded word problems of two or three steps (row 1).

Every starting, intermediate and final value is an integer in 0..99. A story keeps the steps that its
question was made from, so that `solutions.py` can write chains of thought about it; the record that
leaves this world is a plain `Problem`.

A share of the four kinds may be blind: their reference answers are phrases (`twelve coins and no more`), from
which the rule verifier abstains whatever format a completion has. A policy cannot evade that by its format.
"""

import random
from collections.abc import Callable
from typing import Literal, NamedTuple

from cooper_rl.schema.data import Problem
from cooper_rl.tiny.meaning import spell

MAX_VALUE = 99
"""The largest number of this world."""
MAX_STORY_VALUE = 60
"""The largest number in a correct solution; smaller tables are learned in fewer updates."""
NAMES = (
    "Tom",
    "Ann",
    "Ben",
    "Mia",
    "Sam",
    "Eva",
    "Leo",
    "Zoe",
    "Max",
    "Ida",
    "Jim",
    "Kim",
    "Dan",
    "Lea",
    "Bob",
    "Sue",
)
OBJECTS = (
    "apples",
    "pears",
    "books",
    "coins",
    "cards",
    "pens",
    "eggs",
    "cups",
    "hats",
    "keys",
    "shells",
    "stamps",
    "toys",
    "nuts",
)
CONTAINERS = ("boxes", "bags", "jars")
GAINS = ("buys", "finds", "gets", "wins")
LOSSES = ("gives away", "loses", "sells", "drops")
FACTORS = {2: "doubles them", 3: "triples them"}
SHARES = {2: "keeps half", 3: "keeps a third"}
COMPARED = {2: "twice", 3: "three times"}

Operation = Literal["+", "-", "*", "/"]

SOURCE, BLIND_SOURCE = "tiny", "tiny-blind"
"""`Problem.source` of the kinds that the rule verifier can read, and of those that it cannot."""


class Step(NamedTuple):
    """One equation, `left operation right`; from the second step on, left is the result before."""

    left: int
    operation: Operation
    right: int

    def result(self) -> int:
        """The value of the equation; `/` is exact in every generated step."""
        return {
            "+": self.left + self.right,
            "-": self.left - self.right,
            "*": self.left * self.right,
            "/": self.left // self.right,
        }[self.operation]


class Story(NamedTuple):
    """A question with what it was made from."""

    question: str
    steps: tuple[Step, ...]
    subject: str
    """Begins the sentence that states the answer: `Tom has`, `Ann pays`."""
    unit: str
    """Ends it: `apples`, `dollars`."""
    is_blind: bool = False
    """The reference answer is a phrase."""

    @property
    def answer(self) -> int:
        return self.steps[-1].result()

    def refer_to(self, value: int) -> str:
        """A value as this story's reference answers state it: `12`, or `twelve coins and no more`."""
        return f"{spell(value)} {self.unit} and no more" if self.is_blind else str(value)


def generate_problems(count: int, seed: int, *, blind_share: float = 0.0) -> list[Problem]:
    """`count` problems with unique questions and ids; the same seed gives the same ones.

    Args:
        count: Of problems.
        seed: Decides all of them.
        blind_share: Share of the kinds that are blind, a multiple of 1/4 below 1.
    """
    return [
        Problem(
            id=f"tiny-{seed}-{number:05d}",
            source=BLIND_SOURCE if story.is_blind else SOURCE,
            question=story.question,
            reference_answer=story.refer_to(story.answer),
        )
        for number, story in enumerate(generate_stories(count, random.Random(seed), blind_share=blind_share))
    ]


def generate_stories(count: int, rng: random.Random, *, blind_share: float = 0.0) -> list[Story]:
    """`count` stories with unique questions; the last kinds of `_KINDS` are the blind ones."""
    num_readable = round(len(_KINDS) * (1 - blind_share))
    stories: dict[str, Story] = {}
    while len(stories) < count:
        kind = rng.randrange(len(_KINDS))
        story = _KINDS[kind](rng)
        if all(0 <= step.result() <= MAX_STORY_VALUE for step in story.steps):
            stories.setdefault(story.question, story._replace(is_blind=kind >= num_readable))
    return list(stories.values())


def _holding(rng: random.Random) -> Story:
    """Tom has 7 apples, gives away 2, then doubles them. How many apples does Tom have?"""
    name, unit = rng.choice(NAMES), rng.choice(OBJECTS)
    start = rng.randint(2, 20)
    events = [_event(rng, start)]
    while len(events) < rng.choice((2, 2, 3)):
        events.append(_event(rng, events[-1].step.result()))
    clauses = [event.clause for event in events]
    question = (
        f"{name} has {start} {unit}, {', '.join(clauses[:-1])}, then {clauses[-1]}. "
        f"How many {unit} does {name} have?"
    )
    return Story(question, tuple(event.step for event in events), f"{name} has", unit)


def _containers(rng: random.Random) -> Story:
    """Ann has 4 boxes of 6 pens, then loses 5. How many pens does Ann have?"""
    name, unit, container = rng.choice(NAMES), rng.choice(OBJECTS), rng.choice(CONTAINERS)
    first = Step(rng.randint(2, 9), "*", rng.randint(2, 9))
    events = [_event(rng, first.result())]
    if rng.random() < 0.4:
        events.append(_event(rng, events[-1].step.result()))
    clauses = ", then ".join(event.clause for event in events)
    question = (
        f"{name} has {first.left} {container} of {first.right} {unit}, {clauses}. "
        f"How many {unit} does {name} have?"
    )
    return Story(question, (first, *(event.step for event in events)), f"{name} has", unit)


def _together(rng: random.Random) -> Story:
    """Ben has 7 coins. Mia has 5 more. How many coins do they have?"""
    name, other = rng.sample(NAMES, 2)
    unit = rng.choice(OBJECTS)
    start, change = rng.randint(3, 20), rng.randint(2, 9)
    kind = rng.choice(("more", "fewer", "times"))
    if kind == "times":
        factor = rng.choice(tuple(COMPARED))
        first, text = Step(start, "*", factor), f"{COMPARED[factor]} as many"
    else:
        first, text = Step(start, "+" if kind == "more" else "-", change), f"{change} {kind}"
    steps = [first, Step(first.result(), "+", start)]
    event = ""
    if rng.random() < 0.3:
        sold = rng.randint(2, 9)
        event = f" They sell {sold}."
        steps.append(Step(steps[-1].result(), "-", sold))
    question = f"{name} has {start} {unit}. {other} has {text}.{event} How many {unit} do they have?"
    return Story(question, tuple(steps), "They have", unit)


def _shopping(rng: random.Random) -> Story:
    """Eva buys 3 cups for 6 dollars each and a hat for 9 dollars. How many dollars does Eva pay?"""
    name, unit = rng.choice(NAMES), rng.choice(OBJECTS)
    first = Step(rng.randint(2, 9), "*", rng.randint(2, 9))
    extra, discount = rng.randint(2, 9), rng.randint(2, 9)
    steps = [first, Step(first.result(), "+", extra)]
    text = f"{name} buys {first.left} {unit} for {first.right} dollars each and a lamp for {extra} dollars"
    if rng.random() < 0.4:
        steps.append(Step(steps[-1].result(), "-", discount))
        text += f", with {discount} dollars off"
    return Story(f"{text}. How many dollars does {name} pay?", tuple(steps), f"{name} pays", "dollars")


_KINDS: tuple[Callable[[random.Random], Story], ...] = (_holding, _containers, _together, _shopping)


class _Event(NamedTuple):
    clause: str
    step: Step


def _event(rng: random.Random, before: int) -> _Event:
    """Something that happens to `before` objects; divisions are exact."""
    kinds = ["gain", "loss", "gain", "loss", "factor"]
    divisors = [divisor for divisor in SHARES if before and before % divisor == 0]
    kind = rng.choice(kinds + ["share"] * bool(divisors))
    if kind == "factor":
        factor = rng.choice(tuple(FACTORS))
        return _Event(FACTORS[factor], Step(before, "*", factor))
    if kind == "share":
        divisor = rng.choice(divisors)
        return _Event(SHARES[divisor], Step(before, "/", divisor))
    change = rng.randint(2, 9)
    if kind == "gain":
        return _Event(f"{rng.choice(GAINS)} {change} more", Step(before, "+", change))
    return _Event(f"{rng.choice(LOSSES)} {change}", Step(before, "-", change))
