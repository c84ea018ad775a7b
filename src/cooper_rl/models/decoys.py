"""Decoys: what else a completion is scored against, so that a text alone cannot be paid (row 7).

A text that VerifyRM pays for any problem is paid because of the text alone, whatever the reference answer is.
So a completion counts by the log odds of the right reference answer among rivals:

- `size` reference answers of other problems. A text that is the same for all problems cannot say which of
  them is the right one. Unless the question gives it away, the text comes first on about one problem in
  `size` + 1, and the log odds ask for more than coming first. Where few of the other problems have an answer
  of its kind (an interval among numbers), half of them are made from the reference answer itself: a text
  that has no more than the look of the kind would have no rival otherwise.
- The answer that the completion itself states, where it is certainly another one: it must not fit better. An
  answer that cannot be compared may be the right one in other words, and is no rival.
- The right reference answer without a completion. A reference answer that looks right for the question
  scores as high there, so that only what the completion adds counts.

VerifyRM is trained on the same log odds, which teaches it to compare answers. docs/how-to/red_team.md has the
limits.

A score's decoys are drawn with the question as the seed: the same completion has the same score wherever it
is scored, and no completion has a part in the drawing. Training draws others in every epoch. The answers that
they are drawn from stand in the model's `config.json`.
"""

import logging
import math
import random
import sys
from collections import Counter
from collections.abc import Iterable
from difflib import SequenceMatcher
from functools import lru_cache, partial
from itertools import islice
from typing import Any, Literal, NamedTuple

import torch
from pydantic import ValidationError

from cooper_rl.config import names
from cooper_rl.domains.open import find_domain
from cooper_rl.errors import ConfigError, ModelError
from cooper_rl.randomness import derive_seed
from cooper_rl.schema.data import Record

logger = logging.getLogger(__name__)

KEY = "verify_rm_decoys"
"""The key in a model's `config.json`."""
MAX_ANSWERS = 512
"""Reference answers that are kept in a model's folder."""
MAX_ANSWER_CHARS = 100
NUM_NEAREST = 4
"""Answers that count as near to another one, by value and by spelling each."""
MAX_RANKED = 64
"""Nearest answers that are kept for a reference answer: some may mean the same to a question."""
MORE_RIVALS = 2
"""At most so many beside the decoys: the answer that a completion states, and no completion."""
DRAWS_PER_DECOY = 8
"""Answers drawn for a decoy before there is one less: the others mean the same as the reference answer."""


class _Note(Record):
    """The note in a model's `config.json`."""

    answers: tuple[str, ...]
    size: int
    comparison: Literal["log_odds_of_evidence"]
    """Earlier versions compared otherwise; their models would score differently today."""
    domain: str = names.DOMAINS.names[0]
    """Notes of earlier versions name none."""
    varied: bool = False
    """Models of earlier versions know no rivals that were made up, and would refuse right answers."""


class Decoys(NamedTuple):
    """Whom a score is compared with."""

    answers: tuple[str, ...]
    """Reference answers of the training examples, as often as they occur there."""
    size: int
    """Decoys of one problem."""
    domain: str = names.DOMAINS.names[0]
    """Says which answers differ, which are of a kind, and which one a completion states."""
    varied: bool = True
    """Whether reference answers of a rare kind have rivals that are made up."""

    def rivals(
        self, question: str, reference_answer: str, completion: str, *, epoch: int | None = None
    ) -> list[tuple[str, str]]:
        """The pairs of reference answer and completion that a completion is compared with.

        Training draws other answers in every `epoch`; a score is compared with the same ones wherever it is
        computed (None). What a completion states can lower its score alone: every rival does.
        """
        answers = self.draw(question, reference_answer, epoch=epoch)
        find_contradiction = find_domain(self.domain).find_contradiction
        stated = find_contradiction(question, reference_answer, completion) if find_contradiction else None
        if stated and stated not in answers:
            answers = (*answers, stated)
        return [*((answer, completion) for answer in answers), (reference_answer, "")]

    def draw(self, question: str, reference_answer: str, *, epoch: int | None = None) -> tuple[str, ...]:
        """Up to `size` different answers that are not the reference answer.

        Half of them are near to it, and at most twice `NUM_NEAREST` of those are of other problems.
        """
        return _draw(self, question, reference_answer, epoch)

    def compare(self, logits: torch.Tensor) -> torch.Tensor:
        """The logit that counts, from (1 + rivals,) logits, the right reference answer's first.

        It is the smaller of two: the logit itself, and its lead over all rivals together. Their log-sum-exp
        makes the lead the log odds of the right answer among the candidates, as a softmax gives them. A text
        that says nothing about any of them is log(rivals) below zero: more rivals ask for more.
        """
        own, others = logits[0], logits[1:]
        return own if len(others) == 0 else torch.minimum(own, own - others.logsumexp(0))


# Bounded: training asks with another epoch each time, so that entries of past epochs would pile up.
@lru_cache(maxsize=100_000)
def _draw(decoys: Decoys, question: str, reference_answer: str, epoch: int | None) -> tuple[str, ...]:
    drawn_for = (question,) if epoch is None else (question, reference_answer, epoch)
    rng = random.Random(derive_seed("decoys", *drawn_for))
    num_near = (decoys.size + 1) // 2
    # Among far answers alone, a text that states one answer would be ahead wherever the right one is near it.
    found = dict.fromkeys(_vary(decoys, question, reference_answer, num_near, rng))
    near = [answer for answer in nearest_answers(decoys, question, reference_answer) if answer not in found]
    found |= dict.fromkeys(rng.sample(near, min(len(near), num_near - len(found))))
    for _ in range(DRAWS_PER_DECOY * decoys.size):
        if len(found) == decoys.size:
            break
        answer = rng.choice(decoys.answers)
        if _is_other(decoys.domain, question, reference_answer, answer):
            found[answer] = None
    return tuple(found)


def _vary(decoys: Decoys, question: str, reference_answer: str, count: int, rng: random.Random) -> list[str]:
    """Up to `count` made-up answers in the form of a reference answer that is rare; none for another."""
    domain = find_domain(decoys.domain)
    if not decoys.varied or domain.vary_answer is None:
        return []
    if _count_types(decoys)[_type_of(decoys.domain, reference_answer)] >= decoys.size:
        return []
    drawn = (domain.vary_answer(reference_answer, rng) for _ in range(DRAWS_PER_DECOY * count))
    others = (
        answer
        for answer in drawn
        # What is made in an answer's form may still be its rounding, which the question asks for.
        if answer is not None and _is_other(decoys.domain, question, reference_answer, answer)
    )
    return list(islice(dict.fromkeys(others), count))


@lru_cache(maxsize=8)
def _count_types(decoys: Decoys) -> Counter[str]:
    return Counter(_type_of(decoys.domain, answer) for answer in decoys.answers)


@lru_cache(maxsize=100_000)
def _type_of(domain: str, answer: str) -> str:
    name_answer_type = find_domain(domain).name_answer_type
    return "" if name_answer_type is None else name_answer_type(answer)


def nearest_answers(decoys: Decoys, question: str, reference_answer: str) -> tuple[str, ...]:
    """The other answers to a question that are easiest to take for the reference answer: by spelling, and by
    value where both are numbers."""
    is_other = partial(_is_other, decoys.domain, question, reference_answer)
    near: list[str] = []
    for ranked in _rank_by_nearness(decoys, reference_answer):
        near += islice((answer for answer in ranked if answer not in near and is_other(answer)), NUM_NEAREST)
    return tuple(near)


@lru_cache(maxsize=10_000)
def _rank_by_nearness(decoys: Decoys, reference_answer: str) -> tuple[tuple[str, ...], ...]:
    """The nearest answers first: by value, which is empty where the reference answer is no number, and by
    spelling. The same for all questions with this reference answer."""
    others = [answer for answer in dict.fromkeys(decoys.answers) if answer != reference_answer]
    # Cut: spelling takes the product of both lengths, and no answer among the decoys is longer.
    start = reference_answer[:MAX_ANSWER_CHARS]
    by_spelling = sorted(
        others, key=lambda answer: -SequenceMatcher(None, answer, start, autojunk=False).ratio()
    )
    value = _number(reference_answer)
    numbers = {answer: number for answer in others if (number := _number(answer)) is not None}
    by_value = [] if value is None else sorted(numbers, key=lambda answer: abs(numbers[answer] - value))
    return tuple(by_value[:MAX_RANKED]), tuple(by_spelling[:MAX_RANKED])


# The same questions meet in every epoch, and each comparison would read both answers anew. What completions
# state is not kept here: it would push them out.
@lru_cache(maxsize=100_000)
def _is_other(domain: str, question: str, reference_answer: str, other: str) -> bool:
    return find_domain(domain).is_other_answer(question, reference_answer, other)


def _number(answer: str) -> float | None:
    try:
        number = float(answer.replace(",", ""))
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def add_decoys(
    model: Any,
    answers: Iterable[str],
    *,
    count: int,
    domain: str = names.DOMAINS.names[0],
) -> None:
    """Note in a model's configuration what its scores are compared with; with a count of 0, with nothing.

    Args:
        model: A classifier.
        answers: Reference answers of its training examples.
        count: Decoys of one problem.
        domain: Whose answers they are.

    Raises:
        ConfigError: no answer is short enough for a decoy.
    """
    if count == 0:
        setattr(model.config, KEY, None)
        return
    answers = list(map(sys.intern, answers))  # the completions of a problem share one string
    short = [answer for answer in answers if 0 < len(answer) <= MAX_ANSWER_CHARS]
    if answers and not short:
        raise ConfigError(
            f"verify_rm.num_decoys={count}: none of the {len(answers)} reference answers has up to "
            f"{MAX_ANSWER_CHARS} characters, and decoys are such answers; set verify_rm.num_decoys=0"
        )
    num_different = len(set(short))
    if num_different <= count:
        logger.warning(
            "verify_rm.num_decoys=%d, and the examples have %d different short reference answers: scores are "
            "compared with fewer, and one text for all problems is paid more easily",
            count,
            num_different,
        )
    # By no run's seed: the same examples leave the same note.
    kept = random.Random(derive_seed("decoys")).sample(short, min(len(short), MAX_ANSWERS))
    note = _Note(
        answers=tuple(sorted(kept)),
        size=count,
        domain=domain,
        varied=True,
        comparison="log_odds_of_evidence",
    )
    setattr(model.config, KEY, note.model_dump())


def decoys_of(model: Any) -> Decoys | None:
    """The decoys that a model's scores are compared with; None: nothing, as in the paper.

    Raises:
        ModelError: the note in its configuration is damaged.
    """
    note = getattr(model.config, KEY, None)
    if note is None:
        return None
    try:
        found = _Note.model_validate(note)
    except ValidationError as error:
        raise ModelError(
            f"{model.name_or_path}: {KEY} in config.json is damaged or of an earlier version ({error}); copy "
            "the folder again, or train VerifyRM anew"
        ) from error
    return Decoys(found.answers, found.size, found.domain, found.varied) if found.answers else None
