"""The agreement of the voters on labels, and the loss of labels, by kind of answer (row 3).

Counts only: completions are fed as they come, and memory does not grow with them.
"""

from collections import Counter, defaultdict
from collections.abc import Callable
from itertools import combinations

from cooper_rl.schema.data import DECISIVE, Label, Verdict
from cooper_rl.schema.reports import AnswerTypeLabels, LabelAgreement, VoterAgreement

_Table = Counter[tuple[Verdict, Verdict]]


class AgreementCounter:
    """Fed with the label of each completion.

    Args:
        name_answer_type: The kind of a reference answer; None: all are of one kind.
    """

    def __init__(self, name_answer_type: Callable[[str], str] | None = None) -> None:
        self._name_answer_type = name_answer_type
        self._tables: defaultdict[str, _Table] = defaultdict(Counter)
        self._by_type: defaultdict[str, _TypeCounts] = defaultdict(_TypeCounts)
        self._all = _TypeCounts()

    def add(self, label: Label, *, reference_answer: str) -> None:
        """Count what each voter said, and what became of the completion."""
        said = name_votes(label)
        for first, second in combinations(said, 2):
            self._tables[f"{first}~{second}"][said[first], said[second]] += 1
        self._all.add(said, label.is_correct)
        if self._name_answer_type is not None:
            self._by_type[self._name_answer_type(reference_answer)].add(said, label.is_correct)

    def report(self) -> LabelAgreement | None:
        """The report; None where nobody but the rule verifier was asked."""
        if not self._tables:
            return None
        return LabelAgreement(
            pairs={pair: _agreement(table) for pair, table in sorted(self._tables.items())},
            overall=self._all.report(),
            by_answer_type={name: counts.report() for name, counts in sorted(self._by_type.items())},
        )


def name_votes(label: Label) -> dict[str, Verdict]:
    """Voter -> verdict, of those that were asked and answered: `rule`, `judge`, `judge_1`..., `third`.

    With several judges `judge` is their majority, and the numbered ones are each.
    """
    said: dict[str, Verdict] = {"rule": label.rule}
    if label.judge is not None and label.judge_failure is None:
        said["judge"] = label.judge
    numbered = enumerate(label.judges, start=1)
    said |= {f"judge_{number}": vote.verdict for number, vote in numbered if vote.failure is None}
    if label.third is not None and label.third_failure is None:
        said["third"] = label.third
    return said


class _TypeCounts:
    """Counts of completions whose reference answers are of one kind."""

    def __init__(self) -> None:
        self._num_completions = self._num_correct = self._num_correct_dropped = self._num_dropped = 0
        self._table: _Table = Counter()

    def add(self, said: dict[str, Verdict], is_correct: bool | None) -> None:
        self._num_completions += 1
        judge = said.get("judge", "unparsable")
        self._table[said["rule"], judge] += 1
        best = said["rule"] if judge == "unparsable" else judge
        is_dropped = is_correct is None
        self._num_dropped += is_dropped
        # Of a completion that was dropped, the judge is believed, and the rule where the judge abstains.
        self._num_correct += best == "correct" if is_dropped else is_correct
        self._num_correct_dropped += is_dropped and best == "correct"

    def report(self) -> AnswerTypeLabels:
        share = self._num_correct_dropped / self._num_correct if self._num_correct else None
        return AnswerTypeLabels(
            num_completions=self._num_completions,
            num_dropped=self._num_dropped,
            num_correct=self._num_correct,
            num_correct_dropped=self._num_correct_dropped,
            correct_dropped_share=share,
            rule_and_judge=_agreement(self._table),
        )


def _agreement(table: _Table) -> VoterAgreement:
    both = sum(table[first, second] for first in DECISIVE for second in DECISIVE)
    if both == 0:
        return VoterAgreement(num_both=0, agreeing_share=None, kappa=None)
    same = sum(table[verdict, verdict] for verdict in DECISIVE) / both
    by_chance = sum(
        sum(table[verdict, other] for other in DECISIVE) * sum(table[other, verdict] for other in DECISIVE)
        for verdict in DECISIVE
    ) / (both * both)
    kappa = None if by_chance == 1 else (same - by_chance) / (1 - by_chance)
    return VoterAgreement(num_both=both, agreeing_share=same, kappa=kappa)
