"""Dynamic sampling: problems that are all solved or all missed give way to other ones (rows 6 and 7).

Flatness is judged by accuracy, as in DAPO, never by the reward. A length penalty tells two right completions
apart, and VerifyRM's scores are hardly ever equal, yet neither shows the policy how to solve the problem.
The problem drawn in its place is a function of the step's seed, so a resumed run meets the same problems.
Source: arXiv 2503.14476 section 3.2 (DAPO), with a bound on the number of further draws.
"""

import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

from cooper_rl.randomness import derive_seed
from cooper_rl.schema.data import Problem, Verdict
from cooper_rl.training.rollout import RolloutGroup, Scores, places_of


class Scored(NamedTuple):
    """Rollouts with everything that is said of them; the other fields are (B,) with groups contiguous."""

    groups: list[RolloutGroup]
    scores: Scores
    rewards: list[float]
    """Rewards with the penalty for length."""
    accuracies: list[bool | None]
    """Right, wrong, or None where the verifier abstains and the reward does not."""
    num_judged: int = 0
    """Completions that the judge was asked about, also those of groups that were replaced."""


class Refilled(NamedTuple):
    """Rollouts after refills, in the places of the first ones."""

    scored: Scored
    num_replaced: int
    """Groups that gave way to one that is neither all right nor all wrong."""


def refill_flat(
    scored: Scored,
    pool: Sequence[Problem],
    draw: Callable[[list[Problem], int], Scored],
    *,
    max_refills: int,
    seed: int,
) -> Refilled:
    """Replace groups that are all right or all wrong by groups of other problems, up to `max_refills` times.

    A replacement that is flat too is thrown away, and its problem is not drawn again in this step.
    Groups that find no replacement stay.

    Args:
        scored: The first draw.
        pool: Problems to draw from.
        draw: Makes and scores the groups of problems with a seed, in their order. With several ranks it is
            collective: the verdicts that decide about a further call are the same on all of them.
        max_refills: Calls of `draw` at most.
        seed: Of the step.
    """
    parts = _split(scored)
    met = {part.group.problem.id for part in parts}
    num_replaced, num_judged = 0, scored.num_judged
    for attempt in range(max_refills):
        flat = [place for place, part in enumerate(parts) if _is_flat(part)]
        left = [problem for problem in pool if problem.id not in met]
        # Alike on every rank: all of them hold all verdicts, and a rank that drew once more alone would
        # wait for ever.
        if not flat or not left:
            break
        own_seed = derive_seed(seed, "refill", attempt)
        # Of the whole pool and not the next ones in order: the order of an epoch stays that of the steps to
        # come.
        chosen = random.Random(own_seed).sample(left, min(len(flat), len(left)))
        # Also those that turn out flat: asking them once more in this step would draw from the same policy.
        met |= {problem.id for problem in chosen}
        drawn = draw(chosen, own_seed)
        num_judged += drawn.num_judged
        found = [part for part in _split(drawn) if not _is_flat(part)]
        num_replaced += len(found)
        for place, part in zip(flat, found, strict=False):  # as many as were found
            parts[place] = part
    return Refilled(_join(parts)._replace(num_judged=num_judged), num_replaced)


def count_flat(scored: Scored) -> int:
    """Groups whose completions are all right or all wrong, by the verdict behind the reward."""
    return sum(map(_is_flat, _split(scored)))


class _Part(NamedTuple):
    """One group with its rows of the scores."""

    group: RolloutGroup
    verify_rm: list[float]
    rule: list[Verdict]
    judge: list[Verdict] | None
    rewards: list[float]
    accuracies: list[bool | None]


def _is_flat(part: _Part) -> bool:
    # A group with an abstention may hold both kinds, so it is kept.
    return set(part.accuracies) in ({True}, {False})


def _split(scored: Scored) -> list[_Part]:
    parts: list[_Part] = []
    for group, places in places_of(scored.groups):
        own = slice(places.start, places.stop)
        judge = scored.scores.judge
        parts.append(
            _Part(
                group=group,
                verify_rm=scored.scores.verify_rm[own],
                rule=scored.scores.rule[own],
                judge=None if judge is None else judge[own],
                rewards=scored.rewards[own],
                accuracies=scored.accuracies[own],
            )
        )
    return parts


def _join(parts: Sequence[_Part]) -> Scored:
    is_judged = all(part.judge is not None for part in parts)
    return Scored(
        groups=[part.group for part in parts],
        scores=Scores(
            verify_rm=[score for part in parts for score in part.verify_rm],
            rule=[verdict for part in parts for verdict in part.rule],
            judge=[verdict for part in parts for verdict in part.judge or ()] if is_judged else None,
        ),
        rewards=[reward for part in parts for reward in part.rewards],
        accuracies=[accuracy for part in parts for accuracy in part.accuracies],
    )
