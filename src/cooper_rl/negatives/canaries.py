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
IsOther = Callable[[str, str, str], bool]
"""Question, its reference answer, another reference answer -> whether the other is wrong for the question."""
IsWrongFor = Callable[[VerifyExample, VerifyExample], bool]
"""A problem, another one with its solution -> whether the other's answer and solution are wrong here."""
IsRight = Callable[[str, str, str], bool]
"""Question, its reference answer, a text -> whether the text is certainly right."""


def make_canaries(
    examples: Sequence[VerifyExample],
    *,
    max_problems: int,
    rng: random.Random,
    attacks: Attacks,
    is_wrong_for: IsWrongFor,
    is_right: IsRight,
) -> list[Canary]:
    """Every attack on up to `max_problems` problems, where a problem has the material for it.

    A text that happens to be right is left out: `yes` is a forged verdict, and the answer to some questions.

    Args:
        examples: Labelled examples; correct ones give solutions to cut and to put to other problems.
        max_problems: Problems, drawn with the seed.
        rng: Draws problems and other answers.
        attacks: Those of the domain.
        is_wrong_for: Says which other problems have an answer and a solution to attack with.
        is_right: Whether a text is certainly right for a problem.
    """
    by_question = {example.question: example for example in examples}
    solutions = {example.question: example.completion for example in examples if example.label == 1}
    questions = sorted(by_question)
    chosen = sorted(rng.sample(questions, min(max_problems, len(questions))))
    correct = [
        by_question[question].model_copy(update={"completion": solutions[question]})
        for question in sorted(solutions)
    ]
    found: list[Canary] = []
    for question in chosen:
        example = by_question[question]
        other = _draw_other(correct, example, rng, is_wrong_for)
        case = Case(example, solutions.get(question), other)
        for attack, make in attacks.items():
            text = make(case)
            if text is not None and not is_right(question, example.reference_answer, text):
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
        other = draw_other_answer(answers, example, rng, is_other)
        if other is not None:
            swapped.append(example.model_copy(update={"reference_answer": other, "label": 0}))
    return swapped


def draw_other_answer(
    answers: Sequence[str], example: VerifyExample, rng: random.Random, is_other: IsOther
) -> str | None:
    """One of the answers that is another than the example's; None where neither of two that are drawn is."""
    drawn = rng.sample(answers, min(2, len(answers)))
    return next(
        (answer for answer in drawn if is_other(example.question, example.reference_answer, answer)), None
    )


def _draw_other(
    correct: Sequence[VerifyExample], example: VerifyExample, rng: random.Random, is_wrong_for: IsWrongFor
) -> VerifyExample | None:
    """A problem of four that has another answer, and so another question; None where none of them has."""
    # Four draws and no search: every one of them is a comparison by the domain.
    drawn = rng.sample(correct, min(4, len(correct)))
    return next((other for other in drawn if is_wrong_for(example, other)), None)


class CanaryWriter:
    """Canaries as negatives: one attack per item, drawn with the seed; a `negatives.pairs.Assistant`."""

    name = "canary"

    def __init__(self, attacks: Attacks, is_wrong_for: IsWrongFor) -> None:
        """Arguments are those of `make_canaries`; whoever asks has the texts verified."""
        self._attacks = attacks
        self._is_wrong_for = is_wrong_for

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
            other = _draw_other(cases, case, rng, self._is_wrong_for)
            make = self._attacks[rng.choice(sorted(self._attacks))]
            texts.append(make(Case(case, item.solution, other)))
        return texts
