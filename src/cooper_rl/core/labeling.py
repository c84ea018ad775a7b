"""The hybrid decision (row 3): rule verdict and judge verdict become one label.

Also the judge's interface, which the chat server and the laptop's exact evaluator both implement.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from cooper_rl.schema import Verdict


class JudgeItem(NamedTuple):
    """What a judge sees of one completion."""

    question: str
    reference_answer: str
    completion: str


class JudgeResult(NamedTuple):
    """A judge's verdict; `unparsable` when the judge gave none that can be read."""

    verdict: Verdict
    reason: str


class Judge(Protocol):
    """Anything that judges completions by meaning."""

    name: str
    """Written into every label, e.g. `tiny(error_rate=0.02)` or the server's model."""

    def judge(self, items: Sequence[JudgeItem]) -> list[JudgeResult]:
        """One result per item, in order. Raises ServerError when the judge cannot be used at all."""
        ...
