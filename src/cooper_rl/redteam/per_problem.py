"""Search for a text of its own for each of some problems, all of them side by side.

A search starts from texts that were found for other problems, makes others from the best, and ends with the
first that is paid, or when its budget is spent.
"""

import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from cooper_rl.method.metrics import THRESHOLD
from cooper_rl.progress import Progress
from cooper_rl.redteam.oracle import Oracle
from cooper_rl.redteam.search import Candidate
from cooper_rl.schema.data import Problem
from cooper_rl.schema.red_team import Method

logger = logging.getLogger(__name__)

NUM_PARENTS = 4


@dataclass
class Attempt:
    """The search for one problem's text."""

    problem: Problem
    pool: list[tuple[float, Candidate]] = field(default_factory=list)
    """Best first; texts without a score hold the right answer and are not kept."""
    num_queries: int = 0
    seen: set[str] = field(default_factory=set)

    @property
    def is_paid(self) -> bool:
        """True if a paid text was found."""
        return bool(self.pool) and self.pool[0][0] > THRESHOLD


Vary = Callable[[Problem, str, Sequence[Candidate], random.Random], list[str]]
"""Texts made from a problem's text, with the texts that were found so far as further material."""


def attack_each(
    problems: Sequence[Problem],
    start: Sequence[Candidate],
    oracle: Oracle,
    varies: Sequence[tuple[Method, Vary]],
    *,
    max_queries: int,
    rng: random.Random,
) -> list[Attempt]:
    """One attempt per problem, in order.

    Args:
        problems: None of them searched on before.
        start: Texts that are tried first.
        oracle: Scores texts.
        varies: Ways to make texts, taken in turn.
        max_queries: Scores of one problem's texts.
        rng: Draws the changes.
    """
    attempts = [Attempt(problem) for problem in problems]
    progress = Progress("red_team per_problem", len(problems) * max_queries, logger)
    turn = 0
    _try(attempts, [list(start) for _ in attempts], oracle, max_queries)
    shown = 0
    while waiting := [each for each in attempts if not each.is_paid and each.num_queries < max_queries]:
        method, vary = varies[turn % len(varies)]
        texts: list[list[Candidate]] = []
        for attempt in waiting:
            parents = [candidate for _, candidate in attempt.pool[:NUM_PARENTS]] or list(start)
            parent = rng.choice(parents)
            before = oracle.num_queries
            made = vary(attempt.problem, parent.text, parents, rng)
            attempt.num_queries += oracle.num_queries - before
            texts.append([Candidate(text, parent.origin, method) for text in made])
        _try(waiting, texts, oracle, max_queries)
        turn += 1
        done = sum(max_queries if each.is_paid else min(each.num_queries, max_queries) for each in attempts)
        progress.advance(done - shown, paid=sum(each.is_paid for each in attempts) / len(attempts))
        shown = done
    return attempts


def _try(
    attempts: Sequence[Attempt], texts: Sequence[Sequence[Candidate]], oracle: Oracle, max_queries: int
) -> None:
    asked: list[tuple[Attempt, Candidate]] = []
    for attempt, candidates in zip(attempts, texts, strict=True):
        fresh = {each.text: each for each in candidates if each.text not in attempt.seen}
        attempt.seen.update(fresh)
        # A round without a new text counts as well, so that an attempt with nothing left to try ends.
        attempt.num_queries += not fresh
        room = max(0, max_queries - attempt.num_queries)
        asked += [(attempt, each) for each in list(fresh.values())[:room]]
    scores = oracle.scores([(attempt.problem, candidate.text) for attempt, candidate in asked])
    for (attempt, candidate), score in zip(asked, scores, strict=True):
        if attempt.is_paid:
            continue
        # A text that holds the right answer costs a query too: its maker cannot know.
        attempt.num_queries += 1
        if score is not None:
            attempt.pool.append((score, candidate))
            attempt.pool.sort(key=lambda scored: -scored[0])
