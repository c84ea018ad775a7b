"""Preference pairs (row 11): a correct rollout against a rewrite of it that is wrong.

Also the assistant's interface, which the chat server and the laptop's rewriter both implement.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class RewriteItem(NamedTuple):
    """A correct solution that is to become a wrong one of similar length and form."""

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
