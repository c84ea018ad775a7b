"""Canaries: completions that no grader may accept, whatever they look like.

Made from labelled examples, a fixed set for a fixed seed, so that the rate can be followed over a run. Every
canary has the label 0. The attacks themselves are in `text_attacks.py` and, for mathematics, in
`answer_attacks.py`; those found by search against a given model are `redteam/`'s.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from cooper_rl.method.intervals import clustered_interval
from cooper_rl.method.metrics import THRESHOLD
from cooper_rl.negatives.pairs import RewriteItem
from cooper_rl.randomness import derive_seed
from cooper_rl.schema.data import VerifyExample
from cooper_rl.schema.reports import Interval


class Canary(NamedTuple):
    """One attack on one problem."""

    attack: str
    example: VerifyExample


class Case(NamedTuple):
    """A problem with what attacks on it are made of."""

    example: VerifyExample
    solution: str | None
    """A correct completion of this problem."""
    other: VerifyExample | None
    """A correct completion of another problem with another answer."""


Attacks = Mapping[str, Callable[[Case], str | None]]
"""Attack -> its text for a problem; None where the problem has no material for it."""
IsOther = Callable[[str, str], bool]


def make_canaries(
    examples: Sequence[VerifyExample],
    *,
    max_problems: int,
    rng: random.Random,
    attacks: Attacks,
    is_other: IsOther,
) -> list[Canary]:
    """Every attack on up to `max_problems` problems, where a problem has the material for it.

    Args:
        examples: Labelled examples; correct ones give solutions to cut and to put to other problems.
        max_problems: Problems, drawn with the seed.
        rng: Draws problems and other answers.
        attacks: Those of the domain.
        is_other: Whether what one reference answer accepts is wrong by the other.
    """
    by_question = {example.question: example for example in examples}
    solutions = {example.question: example.completion for example in examples if example.label == 1}
    questions = sorted(by_question)
    chosen = sorted(rng.sample(questions, min(max_problems, len(questions))))
    correct = [by_question[question] for question in sorted(solutions)]
    found: list[Canary] = []
    for question in chosen:
        example = by_question[question]
        others = _draw_others(correct, example, rng, is_other)
        other = None
        if others:
            other = others[0].model_copy(update={"completion": solutions[others[0].question]})
        case = Case(example, solutions.get(question), other)
        for attack, make in attacks.items():
            text = make(case)
            if text is not None:
                changes = {"completion": text, "label": 0, "source": f"canary:{attack}"}
                found.append(Canary(attack, example.model_copy(update=changes)))
    return found


def canary_rates(canaries: Sequence[Canary], scores: Sequence[float]) -> dict[str, Interval]:
    """Attack -> share of its canaries that score above 0.5, in the order in which attacks first come."""
    places: dict[str, list[int]] = {}
    for place, canary in enumerate(canaries):
        places.setdefault(canary.attack, []).append(place)
    return {
        attack: false_positive_rate([canaries[p].example for p in members], [scores[p] for p in members])
        for attack, members in places.items()
    }


def mean_rate(rates: Mapping[str, Interval]) -> float:
    """Mean over the attacks; 0 without any."""
    return sum(rate.value for rate in rates.values()) / max(len(rates), 1)


def false_positive_rate(wrong: Sequence[VerifyExample], scores: Sequence[float]) -> Interval:
    """Share of wrong examples that score above 0.5; those of one question are one cluster."""
    by_question: dict[str, list[float]] = {}
    for example, score in zip(wrong, scores, strict=True):
        by_question.setdefault(example.question, []).append(float(score > THRESHOLD))
    return clustered_interval(list(by_question.values()))


def wrong_references(
    examples: Sequence[VerifyExample], rng: random.Random, is_other: IsOther
) -> list[VerifyExample]:
    """Every correct completion with another problem's reference answer; label 0.

    Left out where none is drawn that is another answer.
    """
    answers = sorted({example.reference_answer.strip() for example in examples})
    swapped: list[VerifyExample] = []
    for example in examples:
        if example.label == 0:
            continue
        other = draw_other_answer(answers, example.reference_answer, rng, is_other)
        if other is not None:
            swapped.append(example.model_copy(update={"reference_answer": other, "label": 0}))
    return swapped


def draw_other_answer(
    answers: Sequence[str], reference_answer: str, rng: random.Random, is_other: IsOther
) -> str | None:
    """One of the answers that is another than this; None where neither of two that are drawn is."""
    drawn = rng.sample(answers, min(2, len(answers)))
    return next((answer for answer in drawn if is_other(reference_answer, answer)), None)


def _draw_others(
    correct: Sequence[VerifyExample], example: VerifyExample, rng: random.Random, is_other: IsOther
) -> list[VerifyExample]:
    """Problems of four that have another answer, and so another question."""
    # Four draws and no search: every one of them is a comparison by the domain.
    drawn = rng.sample(correct, min(4, len(correct)))
    return [other for other in drawn if is_other(other.reference_answer, example.reference_answer)]


class CanaryWriter:
    """Canaries as negatives: one attack per item, drawn with the seed; a `negatives.pairs.Assistant`."""

    name = "canary"

    def __init__(self, attacks: Attacks, is_other: IsOther) -> None:
        """Arguments are those of `make_canaries`."""
        self._attacks = attacks
        self._is_other = is_other

    def rewrite(self, items: Sequence[RewriteItem], *, seed: int) -> list[str | None]:
        """One text per item, in order; None where the attack has no material for the problem."""
        cases = [
            VerifyExample(
                question=item.question,
                reference_answer=item.reference_answer,
                completion=item.solution,
                label=1,
            )
            for item in items
        ]
        texts: list[str | None] = []
        for item, case in zip(items, cases, strict=True):
            rng = random.Random(derive_seed(seed, "canary", *item))
            others = _draw_others(cases, case, rng, self._is_other)
            make = self._attacks[rng.choice(sorted(self._attacks))]
            texts.append(make(Case(case, item.solution, others[0] if others else None)))
        return texts
