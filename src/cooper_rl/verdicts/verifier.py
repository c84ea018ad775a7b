"""Verifiers: they check completions against reference answers without a model (rows 3, 7 and 11).

`verdicts/rule.py: RuleVerifier` is the one for mathematics; a domain (`domains/base.py`) names its own.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from cooper_rl.schema.data import FinishReason, Verdict


class AnswerItem(NamedTuple):
    """A completion to check, with all that is known of it."""

    reference_answer: str
    completion: str
    question: str = ""
    """Its choices tell which value a letter stands for."""
    finish_reason: FinishReason | None = None
    """`length`: the completion was cut, so that its last number may be half of one."""


class Check(Protocol):
    """The result for one completion."""

    @property
    def verdict(self) -> Verdict:
        """`unparsable` is an abstention: nobody may take it for wrong."""
        ...

    @property
    def reason(self) -> str:
        """The reason in words, for the audit."""
        ...


class Unkept:
    """Base of an abstention that says nothing of the completion: its process was killed from outside. Whoever
    keeps verdicts asks again."""

    __slots__ = ()


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
