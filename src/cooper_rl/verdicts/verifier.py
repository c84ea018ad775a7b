"""What checks completions against reference answers without a model (rows 3, 7 and 11).

`verdicts/rule.py: RuleVerifier` is the one for mathematics; a domain (`domains/base.py`) names its own.
"""

from collections.abc import Sequence
from typing import Protocol

from cooper_rl.schema.data import Verdict
from cooper_rl.verdicts.answers.verify import AnswerItem as AnswerItem  # what every domain checks


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

    def verify(self, items: Sequence[AnswerItem]) -> Sequence[Check]:
        """One check per item, in order; the same item gets the same verdict.

        Raises:
            CooperError: the verifier is closed, or cannot work at all.
        """
        ...

    def close(self) -> None:
        """Free what it holds; afterwards `verify` refuses."""
        ...
