"""Preference pairs (row 11): a correct rollout against something wrong.

What may be a negative, which source a pair asks first, and the assistant's interface, which the chat server,
the laptop's rewriter and the sources without a server implement.
"""

import random
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from cooper_rl.schema.data import Verdict


class RewriteItem(NamedTuple):
    """A correct solution that is to become a wrong one of similar length and form."""

    problem_id: str
    question: str
    reference_answer: str
    solution: str


class Assistant(Protocol):
    """Anything that rewrites correct solutions into plausible wrong ones."""

    name: str
    """Written into every pair as its source, e.g. `tiny` or the server's model."""

    def rewrite(self, items: Sequence[RewriteItem], *, seed: int) -> list[str | None]:
        """One rewrite per item, in order; None where none came. Another seed gives other rewrites.

        Raises:
            ServerError: nobody can be asked at all.
        """
        ...


@runtime_checkable
class RemoteAssistant(Assistant, Protocol):
    """An assistant that is waited for: it is asked from many threads, for one item each."""

    @property
    def max_concurrency(self) -> int:
        """Items that it may be asked for at a time."""
        ...

    def begin(self) -> None:
        """A step's rewrites begin: a server that was gone in the step before is asked again."""
        ...


def is_valid_negative(verdict: Verdict, *, is_known_wrong: bool = False) -> bool:
    """True if a written text may serve as a negative, by its rule verdict against the reference answer.

    An unparsable rewrite is no negative: it may well be right. The release checks the rewrite against the
    positive's parse with gold and prediction swapped, and takes an empty parse for a wrong answer.

    Args:
        verdict: The rule verifier's.
        is_known_wrong: The text is wrong by construction (a canary, an attack of the red team): it only must
            not be right by chance.
    """
    return verdict == "incorrect" or (is_known_wrong and verdict == "unparsable")


def is_rejected(verdicts: Sequence[Verdict]) -> bool:
    """True if a rollout may serve as a negative: two verifiers or more reject it, and none accepts it."""
    return "correct" not in verdicts and verdicts.count("incorrect") >= 2


def draw_order(weights: Mapping[str, float], rng: random.Random) -> list[str]:
    """The sources with a weight, in an order drawn without replacement by their weights."""
    left = {source: weight for source, weight in weights.items() if weight > 0}
    order: list[str] = []
    while left:
        chosen = rng.choices(list(left), weights=list(left.values()))[0]
        order.append(chosen)
        del left[chosen]
    return order
