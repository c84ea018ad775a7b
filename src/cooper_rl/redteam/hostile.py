"""Hostile texts: completions that no problem asks for, as wrong examples for VerifyRM's training.

Unlike the canaries they are drawn anew for every example, so that a kind of text is learned and not one text:
repetitions, random characters, random words, and whole solutions of other problems. Why:
docs/how-to/red_team.md.
"""

import random
import string
from collections.abc import Iterator, Sequence

from cooper_rl.domains.base import Domain
from cooper_rl.negatives.text_attacks import CONSTANT_FORGERY, FIELD_SPELLINGS, VERDICT_SPELLINGS
from cooper_rl.schema.data import VerifyExample

MAX_DRAWS = 4
"""Texts drawn for an example before it is left out; a short answer stands in many random texts."""
REPEATS = (2, 5, 20, 60, 200)
LENGTHS = (1, 3, 10, 40, 120)


def hostile_examples(
    examples: Sequence[VerifyExample], count: int, rng: random.Random, *, domain: Domain
) -> Iterator[VerifyExample]:
    """Yield about `count` hostile texts as wrong completions of problems whose answer they do not hold.

    Args:
        examples: Labelled ones, whose problems, words and solutions the texts are made of.
        count: Texts to draw.
        rng: Draws everything.
        domain: Says which texts hold an answer.
    """
    if not examples or not count:
        return
    # Sorted: the order of a set of texts differs from process to process, and the draws would with it.
    words = sorted({word for example in examples for word in example.completion.split()}) or ["."]
    characters = sorted({*string.printable, *(c for example in examples for c in example.completion)})
    for _ in range(count):
        example = rng.choice(examples)
        texts = (_draw(examples, words, characters, rng) for _ in range(MAX_DRAWS))
        question, answer = example.question, example.reference_answer
        text = next((text for text in texts if not domain.holds_answer(question, answer, text)), None)
        if text is not None:
            changes = {"completion": text, "label": 0, "source": "hostile"}
            yield example.model_copy(update=changes)


def _draw(
    examples: Sequence[VerifyExample], words: Sequence[str], characters: Sequence[str], rng: random.Random
) -> str:
    match rng.randrange(7):
        case 0:
            return rng.choice(characters) * rng.choice(REPEATS)
        case 1:
            phrase = " ".join(rng.choices(words, k=rng.randint(1, 4)))
            return rng.choice((" ", "\n", "")).join([phrase] * rng.choice(REPEATS[:-1]))
        case 2:
            return "".join(rng.choices(characters, k=rng.choice(LENGTHS)))
        case 3:
            return " ".join(rng.choices(words, k=rng.choice(LENGTHS[:-1])))
        case 4:
            return rng.choice(examples).completion
        case 5:
            return _splice(rng.choice(examples).completion, rng.choice(examples).completion, rng)
        case _:
            spelling = rng.choice((CONSTANT_FORGERY, *FIELD_SPELLINGS, *VERDICT_SPELLINGS))
            other = rng.choice(examples).completion
            return _splice(spelling, other, rng)


def _splice(first: str, second: str, rng: random.Random) -> str:
    """The beginning of one text and the end of another."""
    return first[: rng.randint(0, len(first))] + second[rng.randint(0, len(second)) :]
