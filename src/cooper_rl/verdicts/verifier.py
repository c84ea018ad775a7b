"""What checks completions against reference answers without a model (rows 3, 7 and 11).

`verdicts/rule.py: RuleVerifier` is the one for mathematics; a domain (`domains/base.py`) names its own.
"""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from cooper_rl.schema.data import Verdict


class Check(Protocol):
    """What was found about one completion."""

    @property
    def verdict(self) -> Verdict:
        """`unparsable` is an abstention: nobody may take it for wrong."""
        ...

    @property
    def reason(self) -> str:
        """For the audit, in words."""
        ...


class Verifier(Protocol):
    """Checks completions; callable from any thread, and from several at the same time."""

    def verify(self, items: Sequence[tuple[str, str]]) -> Sequence[Check]:
        """One check per (reference answer, completion), in order; the same texts get the same verdict.

        Raises:
            CooperError: the verifier is closed, or cannot work at all.
        """
        ...

    def close(self) -> None:
        """Free what it holds; afterwards `verify` refuses."""
        ...


@runtime_checkable
class VotingVerifier(Verifier, Protocol):
    """A verifier with a second, laxer opinion: the third vote where rule and judge differ."""

    def vote(self, items: Sequence[tuple[str, str]]) -> Sequence[Check]:
        """Like `verify`; `unparsable` is no vote."""
        ...
