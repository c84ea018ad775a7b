"""The order in which a reward puts the completions of one problem, and a test of it at every step (row 14).

A policy update raises what is paid above the mean of its group. A reward that puts wrong completions as high
as right ones raises accuracy no more, and the policy drifts towards whatever it pays. The order shows that
before accuracy falls. It is known for problems of which the rule verifier accepts one completion and rejects
another. A policy that writes what the rule verifier cannot read changes nothing about it.

The test is a bet against "the order is `least` or better, on average, whatever came before". Where that is
true, no bet is expected to win (Waudby-Smith and Ramdas 2024, "Estimating means of bounded random variables
by betting"). A new bet may be opened at every step, so that a reward which was good for long is noticed soon.
The stakes of all bets add up to one. By Ville's inequality the chance that they are ever worth 1 / p together
is at most p, in a run of any length.
"""

import math
from collections.abc import Iterable, Sequence
from itertools import islice

from cooper_rl.method.metrics import auroc
from cooper_rl.schema.data import Record, Verdict

STAKE = 2.0
"""Factor of a bet's gain, (least - order). A bet cannot lose more than it has while `least` is .5 or more."""
SMALLEST_GROWTH = 1e-9


class OrderState(Record):
    """The test so far: the bet that has the most."""

    log_evidence: float | None = None
    """Natural logarithm of what it has; None: nothing was seen yet."""
    since_step: int | None = None
    """The step at which it was opened: from there the order has been bad."""
    num_looks: int = 0
    """Steps with a known order."""


def order_of(rewards: Sequence[float], verdicts: Sequence[Verdict], sizes: Iterable[int]) -> float | None:
    """Probability that a right completion is paid more than a wrong one of the same problem, ties one half.

    Args:
        rewards: (B,) of all completions, groups contiguous.
        verdicts: (B,) of the rule verifier; those that it cannot read do not count.
        sizes: Completions of each group.

    Returns:
        The mean over problems with a right and a wrong completion; None without any.
    """
    known = zip(rewards, verdicts, strict=True)
    found: list[float] = []
    for size in sizes:
        group = [(reward, verdict) for reward, verdict in islice(known, size) if verdict != "unparsable"]
        area = auroc([verdict == "correct" for _, verdict in group], [reward for reward, _ in group])
        if area is not None:
            found.append(area)
    return sum(found) / len(found) if found else None


def bet(state: OrderState, *, step: int, order: float | None, least: float) -> OrderState:
    """The test after a step.

    Args:
        state: After the step before.
        step: Its number.
        order: What `order_of` gave; None: the step says nothing.
        least: The order, .5 or more, that the bets are against.
    """
    if order is None:
        return state
    looks = state.num_looks + 1
    # 1/2 + 1/6 + 1/12 + ... = 1: all bets that are ever opened have one unit together.
    opened = -math.log(looks * (looks + 1))
    held = -math.inf if state.log_evidence is None else state.log_evidence
    growth = max(SMALLEST_GROWTH, 1 + STAKE * (least - order))
    return OrderState(
        log_evidence=max(opened, held) + math.log(growth),
        since_step=step if opened > held else state.since_step,
        num_looks=looks,
    )


def is_proven(state: OrderState, max_false_alarms: float) -> bool:
    """True if the order is worse than the bound, up to the chance of a false alarm in the whole run."""
    return state.log_evidence is not None and state.log_evidence >= -math.log(max_false_alarms)
