"""pass@k: the chance that one of k completions of a problem is right, from n completions (row 14)."""

from collections.abc import Sequence
from math import comb

from cooper_rl.method.intervals import clustered_interval
from cooper_rl.schema.reports import Interval

NUM_DRAWS = (1, 2, 4, 8)
"""The k that are reported, as far as the completions of a problem allow."""


def pass_at(k: int, *, num_samples: int, num_right: int) -> float:
    """Unbiased estimate of pass@k of one problem: 1 - C(n-c, k) / C(n, k), arXiv 2107.03374 equation 1.

    The plain estimate 1 - (1 - c/n)^k draws with replacement, and is too low for every k above 1.

    Args:
        k: Completions drawn, 1 to `num_samples`.
        num_samples: n, completions of the problem.
        num_right: c, how many of them are right.
    """
    return 1 - comb(num_samples - num_right, k) / comb(num_samples, k)


def pass_at_k(outcomes: Sequence[Sequence[float]]) -> dict[int, Interval]:
    """k -> mean pass@k with its 95 % interval over problems; k = 1 is the accuracy.

    Args:
        outcomes: 1 or 0 for each completion of each problem; the problem with the fewest bounds k.

    Raises:
        DataError: there are no problems.
    """
    fewest = min(map(len, outcomes), default=1)
    found = {1: clustered_interval(outcomes)}
    for k in NUM_DRAWS[1:]:
        if k <= fewest:
            rates = [[pass_at(k, num_samples=len(own), num_right=round(sum(own)))] for own in outcomes]
            found[k] = clustered_interval(rates)
    return found
