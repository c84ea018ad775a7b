"""Preference pairs (row 11): a correct rollout against a rewrite of it that is wrong.

Also the assistant's interface, which the chat server and the laptop's rewriter both implement.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from cooper_rl.schema import Verdict


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
        """One rewrite per item, in order; None where none came. Another seed gives other rewrites."""
        ...


def is_valid_negative(verdict: Verdict) -> bool:
    """Whether a rewrite may serve as a negative, by its rule verdict against the reference answer.

    An unparsable rewrite is no negative: it may well be right. The release checks the rewrite against the
    positive's parse with gold and prediction swapped, and takes an empty parse for a wrong answer.
    """
    return verdict == "incorrect"
