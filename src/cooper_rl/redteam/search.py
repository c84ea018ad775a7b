"""Search for one text that VerifyRM pays on all problems, and for one problem's own text.

A genetic search with racing: a new text is tried on a few problems first, and scored on all only where it
does better there than half of the texts that are kept. Every text descends from a seed and carries its name.
New texts come from `propose`: random changes (`redteam/mutation.py`) or VerifyRM's gradients
(`redteam/gradients.py`).
"""

import logging
import math
import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from cooper_rl.config.red_team import RedTeamConfig
from cooper_rl.method.metrics import THRESHOLD
from cooper_rl.progress import Progress
from cooper_rl.redteam.journal import Journal
from cooper_rl.redteam.oracle import Oracle
from cooper_rl.redteam.seeds import Seed
from cooper_rl.schema.data import Problem
from cooper_rl.schema.red_team import Method

logger = logging.getLogger(__name__)

PAID = 100.0
"""Worth of being paid on one problem: more than all that coming near it on a hundred others is worth. With
less a text that is nearly paid on most problems would be kept in place of one that is paid on some."""
SOFTENING = 4.0
"""Divides the log-odds of a score, so that .001 and .01 still differ for the search."""
MAX_SHARE_OF_ORIGIN = 0.25
"""Share of one seed's offspring among the texts that are kept, so that it does not crowd out all others."""
MAX_IDLE_ROUNDS = 50
"""Rounds in a row without a new text after which a search has nothing left to try."""


@dataclass
class Candidate:
    """A text with its scores on the problems searched on, as far as they were asked for."""

    text: str
    origin: str
    method: Method
    scores: dict[int, float | None] = field(default_factory=dict)
    """Place of the problem -> score; None where the text may be right."""
    num_queries: int = 0
    """Queries of the search when it was scored on all problems."""

    def fitness(self, places: Sequence[int]) -> float:
        """Mean over these problems; a right answer is worth nothing."""
        return sum(worth(self.scores[place]) for place in places) / len(places)


class Improvement(NamedTuple):
    """A text that became the best so far."""

    candidate: Candidate
    method: Method
    num_queries: int


Propose = Callable[[Sequence[Candidate], random.Random], list[tuple[str, str]]]
"""Texts made from those that are kept (best first), each with the origin of its parent."""


def worth(score: float | None) -> float:
    """Fitness of a score: whether it is paid, then how far it is from being paid."""
    if score is None:
        return 0.0
    # Odds, because scores near 0 differ by factors: in the score itself 0.001 and 0.01 look alike.
    odds = math.log(max(score, 1e-9) / max(1 - score, 1e-9))
    return PAID * float(score > THRESHOLD) + 1 / (1 + math.exp(-odds / SOFTENING))


class UniversalSearch:
    """Texts for all of some problems; goes through one method after another and keeps what it found."""

    def __init__(
        self, problems: Sequence[Problem], oracle: Oracle, journal: Journal, config: RedTeamConfig
    ) -> None:
        self._problems = problems
        self._oracle = oracle
        self._journal = journal
        self._config = config
        self._seen: set[str] = set()
        self.population: list[Candidate] = []
        """Scored on all problems, best first."""
        self.improvements: list[Improvement] = []
        self.best_of_origin: dict[str, Candidate] = {}
        """Also of origins that the population has lost."""

    def try_seeds(self, seeds: Sequence[Seed]) -> dict[str, Candidate]:
        """Score every seed on a few problems and the best of them on all; returns each family's best."""
        families = {seed.name: seed.family for seed in seeds}
        fresh = [Candidate(seed.text, seed.name, "seed") for seed in seeds]
        self._seen.update(candidate.text for candidate in fresh)
        probe = range(min(self._config.probe_problems, len(self._problems)))
        self._score(fresh, probe)
        fresh.sort(key=lambda candidate: -candidate.fitness(probe))
        self._admit(fresh[: self._config.population], "seed")
        best: dict[str, Candidate] = {}
        for candidate in fresh:
            # `fresh` is in order of fitness: the first of a family is its best.
            best.setdefault(families[candidate.origin], candidate)
        return best

    def run(
        self,
        method: Method,
        propose: Propose,
        *,
        max_queries: int,
        max_seconds: float | None,
        rng: random.Random,
    ) -> None:
        """Make, try and select texts until the budget of this method is spent.

        It ends earlier where every text that is kept is paid on every problem.
        """
        first_query, first_second = self._oracle.num_queries, self._journal.seconds()
        total = max_queries if max_seconds is None else None  # nobody knows how many the time allows
        progress = Progress(f"red_team {method}", total, logger)
        shown = idle_rounds = 0
        while (spent := self._oracle.num_queries - first_query) < max_queries:
            if max_seconds is not None and self._journal.seconds() - first_second >= max_seconds:
                break
            if all(paid_share(candidate, len(self._problems)) == 1 for candidate in self.population):
                break
            progress.advance(spent - shown, paid=self.best_rate())
            shown = spent
            fresh = self._fresh(propose(self.population, rng), method)
            idle_rounds = 0 if fresh else idle_rounds + 1
            if idle_rounds == MAX_IDLE_ROUNDS:
                break
            if fresh:
                self._race(fresh, method, rng)
        progress.advance(self._oracle.num_queries - first_query - shown, paid=self.best_rate())

    def best_rate(self) -> float:
        """Share of the problems on which the best text is paid."""
        return paid_share(self.population[0], len(self._problems))

    def _fresh(self, proposed: Sequence[tuple[str, str]], method: Method) -> list[Candidate]:
        fresh: list[Candidate] = []
        for text, origin in proposed:
            # VerifyRM is deterministic: asking twice spends a query and learns nothing.
            if text not in self._seen:
                self._seen.add(text)
                fresh.append(Candidate(text, origin, method))
        return fresh

    def _race(self, fresh: list[Candidate], method: Method, rng: random.Random) -> None:
        size = min(self._config.probe_problems, len(self._problems))
        probe = rng.sample(range(len(self._problems)), size)
        self._score(fresh, probe)
        # The same problems for old and new: two random samples would differ by luck alone.
        bar = statistics.median(candidate.fitness(probe) for candidate in self.population)
        promising = [candidate for candidate in fresh if candidate.fitness(probe) > bar]
        promising.sort(key=lambda candidate: -candidate.fitness(probe))
        # A few at a time: each of them is a query for every problem.
        self._admit(promising[: max(1, self._config.population // 4)], method)

    def _admit(self, candidates: Sequence[Candidate], method: Method) -> None:
        """Score on all problems and keep the best of old and new."""
        places = range(len(self._problems))
        self._score(candidates, places)
        for candidate in candidates:
            candidate.num_queries = self._oracle.num_queries
        # Of equally good texts the shorter one: it shows what the attack is.
        ordered = sorted(
            [*self.population, *candidates],
            key=lambda candidate: (-candidate.fitness(places), len(candidate.text), candidate.text),
        )
        self.population = _limit_origins(ordered, self._config.population)
        for candidate in ordered:
            known = self.best_of_origin.setdefault(candidate.origin, candidate)
            if candidate.fitness(places) > known.fitness(places):
                self.best_of_origin[candidate.origin] = candidate
        best = self.population[0]
        if not self.improvements or best is not self.improvements[-1].candidate:
            self.improvements.append(Improvement(best, method, self._oracle.num_queries))

    def _score(self, candidates: Sequence[Candidate], places: Sequence[int]) -> None:
        missing = [
            (candidate, place)
            for candidate in candidates
            for place in places
            if place not in candidate.scores
        ]
        pairs = [(self._problems[place], candidate.text) for candidate, place in missing]
        for (candidate, place), score in zip(missing, self._oracle.scores(pairs), strict=True):
            candidate.scores[place] = score


def paid_share(candidate: Candidate, num_problems: int) -> float:
    """Share of the problems on which a text is paid; those for which it may be right count as not."""
    return sum(score is not None and score > THRESHOLD for score in candidate.scores.values()) / num_problems


def _limit_origins(ordered: Sequence[Candidate], size: int) -> list[Candidate]:
    most = max(1, int(MAX_SHARE_OF_ORIGIN * size))
    counts: dict[str, int] = {}
    kept: list[Candidate] = []
    for candidate in ordered:
        counts[candidate.origin] = counts.get(candidate.origin, 0) + 1
        if counts[candidate.origin] <= most and len(kept) < size:
            kept.append(candidate)
    return kept
