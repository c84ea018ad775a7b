"""The hybrid decision (row 3): rule verdict and judge verdict become one label.

Also the judge's interface, which the chat server and the laptop's exact evaluator both implement.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple, Protocol, runtime_checkable

from cooper_rl.errors import ServerError
from cooper_rl.schema.data import Verdict
from cooper_rl.schema.reports import JudgeUsage


class JudgeItem(NamedTuple):
    """A judge's input for one completion."""

    question: str
    reference_answer: str
    completion: str


class JudgeResult(NamedTuple):
    """A judge's verdict; `unparsable` when the judge gave none that can be read."""

    verdict: Verdict
    reason: str
    failure: Literal["refused", "unreachable"] | None = None
    """Nobody judged: this request was refused, or no answer came. Such a verdict is never kept."""


class Judge(Protocol):
    """Anything that judges completions by meaning."""

    name: str
    """Written into every label, e.g. `tiny(error_rate=0.02)` or the server's model."""
    identity: str
    """Names everything that a verdict depends on beside the item; a kept verdict is found again by it."""

    def judge(self, items: Sequence[JudgeItem]) -> list[JudgeResult]:
        """One result per item, in order. Raises ServerError when the judge cannot be used at all."""
        ...


@runtime_checkable
class StreamingJudge(Judge, Protocol):
    """A judge whose verdicts cost time or money: each can be kept as it comes, and the cost is counted."""

    @property
    def usage(self) -> JudgeUsage:
        """The usage since the judge was opened."""
        ...

    def announce(self, items: Iterable[JudgeItem], *, is_most: bool = False) -> str:
        """The cost of asking about these, in words; the items are read one by one. `is_most`: fewer of them
        may be asked about."""
        ...

    def stream(self, items: Sequence[JudgeItem]) -> Iterator[tuple[int, JudgeResult]]:
        """(index, result) of every item, in the order in which the verdicts come."""
        ...


def check_judged(results: Sequence[JudgeResult], *, judge: str, was_answered_before: bool = False) -> None:
    """Check that a run's requests were not all in vain.

    Where earlier requests were answered, the rest may be a few that the server refuses for good.

    Raises:
        ServerError: every request failed.
    """
    failures = [result for result in results if result.failure is not None]
    if not results or len(failures) < len(results):
        return
    if was_answered_before and all(result.failure == "refused" for result in failures):
        return
    raise ServerError(
        f"judge {judge}: all {len(results)} requests failed, last: {failures[-1].reason}; check that the "
        "server runs and that base_url and model are right, then start again: known verdicts are kept"
    )


class Decision(NamedTuple):
    """The label of a completion, and why; `is_correct` None drops it."""

    is_correct: bool | None
    reason: str


def decide(
    rule: Verdict,
    judge: Verdict | None,
    third: Verdict | None,
    *,
    unparsable_rule: Literal["judge_decides", "drop"],
) -> Decision:
    """The truth table; `judge` and `third` are None when nobody was asked.

    | rule       | judge      | third vote | label                                                  |
    |------------|------------|------------|--------------------------------------------------------|
    | yes or no  | not asked  |            | the rule's                                             |
    | unparsable | not asked  |            | dropped                                                |
    | yes        | yes        |            | correct                                                |
    | no         | no         |            | incorrect                                              |
    | unparsable | yes or no  |            | the judge's, or dropped with `unparsable_rule = drop`  |
    | unparsable | unparsable |            | dropped                                                |
    | yes or no  | the other, or unparsable | yes or no  | the third vote's                         |
    | yes or no  | the other, or unparsable | otherwise  | dropped                                  |
    """
    if judge is None:
        return Decision(None, "rule_abstains") if rule == "unparsable" else Decision(_is(rule), "rule_alone")
    if rule == "unparsable":
        if judge == "unparsable":
            return Decision(None, "both_abstain")
        if unparsable_rule == "drop":
            return Decision(None, "rule_abstains")
        return Decision(_is(judge), "rule_abstains_judge_decides")
    if rule == judge:
        return Decision(_is(rule), "both_agree")
    split = "judge_abstains" if judge == "unparsable" else "rule_and_judge_disagree"
    if third is None or third == "unparsable":
        return Decision(None, split)
    return Decision(_is(third), f"{split}_third_vote_decides")


def needs_third_vote(rule: Verdict, judge: Verdict | None) -> bool:
    """True if a third vote can change the decision."""
    return judge is not None and rule != "unparsable" and rule != judge


def _is(verdict: Verdict) -> bool:
    return verdict == "correct"
