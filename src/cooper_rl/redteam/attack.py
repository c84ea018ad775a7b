"""The whole attack on one VerifyRM: universal texts searched on some problems, then texts for single others.

In order: seeds, random changes, gradients (which start from the texts before), texts for the problems with
one kind of answer, and texts of their own for problems that no search has seen. What the texts are worth is
measured afterwards (`redteam/findings.py`).
"""

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from cooper_rl.config.red_team import RedTeamConfig
from cooper_rl.errors import DataError
from cooper_rl.method.questions import question_key
from cooper_rl.randomness import derive_seed
from cooper_rl.redteam.gradients import GradientGuide
from cooper_rl.redteam.journal import Journal
from cooper_rl.redteam.mutation import Material, make_material, mutate
from cooper_rl.redteam.oracle import Oracle
from cooper_rl.redteam.per_problem import Attempt, Vary, attack_each
from cooper_rl.redteam.search import Candidate, Improvement, Propose, UniversalSearch
from cooper_rl.redteam.seeds import Seed, fill, gather_seeds
from cooper_rl.schema.data import Problem, RolloutSample
from cooper_rl.schema.red_team import Method

MIN_PROBLEMS = 3
"""One to search on, two to measure on."""
CHILDREN_PER_PROBLEM = 8
MIN_OF_TYPE = 9
"""Problems of a kind of answer that a search of its own needs: three to search on, six to measure on."""


class Split(NamedTuple):
    """Problems without a question in common."""

    search: list[Problem]
    unseen: list[Problem]
    rest: list[Problem]
    """Unseen too, and more than `max_unseen_problems`: those of a rare kind of answer count."""


class OfType(NamedTuple):
    """The best text for the problems with one kind of answer."""

    unseen: list[Problem]
    """Those that its search has not seen."""
    num_search: int
    best: Candidate


class Found(NamedTuple):
    """The finds of the searches."""

    split: Split
    seeds: list[Seed]
    families: dict[str, Candidate]
    """The best seed of every kind of attack, on a few of the problems searched on."""
    best: dict[Method, Candidate]
    """The best universal text after each search, on the problems searched on."""
    kept: list[Candidate]
    """The best universal text of every origin, best first."""
    improvements: list[Improvement]
    by_type: dict[str, OfType]
    """Kind of answer -> the best text on its problems alone; empty where all answers are of one kind."""
    rare_types: dict[str, int]
    """Kind of answer -> its problems, where they are too few for a search of their own."""
    attempts: list[Attempt]
    num_queries: int


def split_problems(problems: Sequence[Problem], config: RedTeamConfig, seed: int) -> Split:
    """Problems with different questions, drawn for the search and for measuring.

    Raises:
        DataError: too few questions.
    """
    by_question = {question_key(problem.question): problem for problem in problems}
    # In an order of its own, so that the split does not depend on the order of the file.
    shuffled = [by_question[key] for key in sorted(by_question)]
    if len(shuffled) < MIN_PROBLEMS:
        raise DataError(
            f"the red team needs problems with {MIN_PROBLEMS} different questions or more, not "
            f"{len(shuffled)}; give a larger file of held-out problems"
        )
    _rng(seed, "split").shuffle(shuffled)
    num_search = min(config.max_search_problems, len(shuffled) // 3)
    end = num_search + config.max_unseen_problems
    return Split(shuffled[:num_search], shuffled[num_search:end], shuffled[end:])


def _rng(seed: int, purpose: str) -> random.Random:
    return random.Random(derive_seed(seed, "red_team", purpose))


def attack(
    oracle: Oracle,
    guide: GradientGuide,
    problems: Sequence[Problem],
    rollouts: Sequence[RolloutSample],
    known: Sequence[str] = (),
    *,
    config: RedTeamConfig,
    seed: int,
    journal: Journal,
) -> Found:
    """All searches; deterministic but for a bound in seconds.

    Args:
        oracle: Gives VerifyRM's scores, and knows the domain.
        guide: Gives its gradients.
        problems: VerifyRM should not have been trained on them.
        rollouts: Of a run's training; rewarded wrong ones are seeds.
        known: Texts that an earlier search found; seeds too.
        config: Budgets.
        seed: Of all draws.
        journal: Open, and the one that oracle and guide record in.
    """

    draw = partial(_rng, seed)
    split = split_problems(problems, config, seed)
    seeds = gather_seeds(
        split.search,
        rollouts,
        known,
        domain=oracle.domain,
        max_rollouts=config.max_rollout_seeds,
        rng=draw("seeds"),
    )
    material = make_material(seeds)
    search = UniversalSearch(split.search, oracle, journal, config)
    families = search.try_seeds(seeds)
    best: dict[Method, Candidate] = {"seed": search.population[0]}
    search.run(
        "mutation",
        _mutations(material, config),
        # The seeds' queries are part of this budget; the gradients have one of their own.
        max_queries=max(0, config.max_queries - oracle.num_queries),
        max_seconds=config.max_seconds,
        rng=draw("mutation"),
    )
    best["mutation"] = search.population[0]
    if config.max_gradient_queries:
        search.run(
            "gradient",
            _gradient_steps(guide, split.search, config),
            max_queries=config.max_gradient_queries,
            max_seconds=config.max_gradient_seconds,
            rng=draw("gradient"),
        )
        best["gradient"] = search.population[0]
    kept = _best_of_each(search, split.search)[: config.num_texts]
    by_type, rare_types = _attack_types(split, seeds, kept, material, oracle, journal, config, draw)
    attempts = attack_each(
        split.unseen[: config.max_attacked_problems],
        kept,
        oracle,
        _varies(guide, material, config),
        max_queries=config.queries_per_problem,
        rng=draw("per_problem"),
    )
    return Found(
        split,
        seeds,
        families,
        best,
        kept,
        search.improvements,
        by_type,
        rare_types,
        attempts,
        oracle.num_queries,
    )


def _attack_types(
    split: Split,
    seeds: Sequence[Seed],
    kept: Sequence[Candidate],
    material: Material,
    oracle: Oracle,
    journal: Journal,
    config: RedTeamConfig,
    draw: Callable[[str], random.Random],
) -> tuple[dict[str, OfType], dict[str, int]]:
    """A search for each kind of answer: what is paid for one kind alone is lost in a search over all.

    The second dictionary counts the problems of the kinds that are too rare.
    """
    name_answer_type = oracle.domain.name_answer_type
    if name_answer_type is None or config.max_type_queries == 0:
        return {}, {}
    searched, others = (
        _by_type(problems, name_answer_type) for problems in (split.search, [*split.unseen, *split.rest])
    )
    names = sorted(searched.keys() | others.keys())
    if len(names) == 1:
        return {}, {}
    found: dict[str, OfType] = {}
    rare: dict[str, int] = {}
    starts = {each.text: Seed(each.origin, "found", each.text) for each in kept}
    starts |= {seed.text: seed for seed in seeds}
    for name in names:
        chosen, unseen = _split_type(searched.get(name, []), others.get(name, []), config.max_search_problems)
        if (count := len(chosen) + len(unseen)) < MIN_OF_TYPE:
            rare[name] = count
            continue
        search = UniversalSearch(chosen, oracle, journal, config)
        before = oracle.num_queries
        search.try_seeds(list(starts.values()))
        search.run(
            "mutation",
            _mutations(material, config),
            max_queries=max(0, config.max_type_queries - (oracle.num_queries - before)),
            max_seconds=config.max_seconds,
            rng=draw(f"type {name}"),
        )
        found[name] = OfType(unseen[: config.max_unseen_problems], len(chosen), search.population[0])
    return found, rare


def _split_type(
    searched: list[Problem], others: list[Problem], max_searched: int
) -> tuple[list[Problem], list[Problem]]:
    """The problems of one kind to search on, and those to measure on.

    The draw over all problems gives a rare kind few to search on, so it gets up to a third of its problems.
    """
    wanted = min(max_searched, (len(searched) + len(others)) // 3)
    end = len(others) - max(0, wanted - len(searched))
    return searched + others[end:], others[:end]


def _by_type(problems: Sequence[Problem], name_answer_type: Callable[[str], str]) -> dict[str, list[Problem]]:
    found: dict[str, list[Problem]] = {}
    for problem in problems:
        found.setdefault(name_answer_type(problem.reference_answer), []).append(problem)
    return found


def _best_of_each(search: UniversalSearch, problems: Sequence[Problem]) -> list[Candidate]:
    """The best text of every origin, best first: the best of all, and others that differ from it in kind."""
    places = range(len(problems))
    return sorted(
        search.best_of_origin.values(),
        key=lambda candidate: (-candidate.fitness(places), len(candidate.text), candidate.text),
    )


def _mutations(material: Material, config: RedTeamConfig) -> Propose:
    def propose(population: Sequence[Candidate], rng: random.Random) -> list[tuple[str, str]]:
        made: list[tuple[str, str]] = []
        for _ in range(config.children):
            # The better of two: good texts are changed more often, poor ones now and then.
            parent = population[min(rng.randrange(len(population)), rng.randrange(len(population)))]
            other = rng.choice(population)
            text = mutate(parent.text, other.text, material, max_chars=config.max_chars, rng=rng)
            made.append((text, parent.origin))
        return made

    return propose


def _gradient_steps(guide: GradientGuide, problems: Sequence[Problem], config: RedTeamConfig) -> Propose:
    def propose(population: Sequence[Candidate], rng: random.Random) -> list[tuple[str, str]]:
        parent = population[min(rng.randrange(len(population)) for _ in range(3))]
        asked = rng.sample(list(problems), min(config.probe_problems, len(problems)))
        texts = guide.vary(parent.text, asked, config.children, rng)
        return [(text, parent.origin) for text in texts if len(text) <= config.max_chars]

    return propose


def _varies(guide: GradientGuide, material: Material, config: RedTeamConfig) -> list[tuple[Method, Vary]]:
    def change(problem: Problem, text: str, pool: Sequence[Candidate], rng: random.Random) -> list[str]:
        others = [candidate.text for candidate in pool]
        return [
            mutate(text, rng.choice(others), material, max_chars=config.max_chars, rng=rng)
            for _ in range(CHILDREN_PER_PROBLEM)
        ]

    def follow(problem: Problem, text: str, pool: Sequence[Candidate], rng: random.Random) -> list[str]:
        texts = guide.vary(fill(text, problem), [problem], CHILDREN_PER_PROBLEM, rng)
        return [text for text in texts if len(text) <= config.max_chars]

    ways: list[tuple[Method, Vary]] = [("mutation", change), ("gradient", follow)]
    return ways if config.max_gradient_queries else ways[:1]
