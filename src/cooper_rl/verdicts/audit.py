"""The random check of a cascade: the error of the labels that nobody checked (row 3).

Fed completion by completion; memory is bounded, since questions are put into groups by a hash. A group of
questions is as good a cluster as a question where there are many of them.
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import Literal
from zlib import crc32

from cooper_rl.method.intervals import clustered_interval, weighted_total
from cooper_rl.method.questions import question_key
from cooper_rl.schema.data import Label
from cooper_rl.schema.reports import AuditedVerdict, Interval, LabelAudit

NUM_GROUPS = 1 << 16

Decisive = Literal["correct", "incorrect"]


class AuditCounter:
    """Fed with the label of every completion of a cascade."""

    def __init__(self) -> None:
        self._by_verdict: Mapping[Decisive, _Counts] = {"correct": _Counts(), "incorrect": _Counts()}

    def add(self, label: Label, *, question: str) -> None:
        """Counts where the rule verdict is decisive: unchecked, audited, or audited without a verdict.

        A verdict is contradicted where the judge says the opposite and the third vote, where one was given,
        does not side with the rule.
        """
        if label.rule == "unparsable":
            return
        counts = self._by_verdict[label.rule]
        if label.judge is None:
            counts.num_unchecked += 1
        elif label.judge != "unparsable":
            counts.add(question, is_contradicted=label.rule not in (label.judge, label.third))

    def report(self) -> LabelAudit | None:
        """The report; None where nothing was audited."""
        found = {verdict: counts.report() for verdict, counts in self._by_verdict.items()}
        num_audited = sum(each.num_audited for each in found.values())
        if num_audited == 0:
            return None
        both = _Counts()
        for counts in self._by_verdict.values():
            both.merge(counts)
        parts = [(each.wrong_share, each.num_unchecked) for each in found.values() if each.num_unchecked]
        known = [(share, count) for share, count in parts if share is not None]
        return LabelAudit(
            num_audited=num_audited,
            num_unchecked=sum(each.num_unchecked for each in found.values()),
            differing_share=both.share(),
            correct=found["correct"],
            incorrect=found["incorrect"],
            num_wrong=weighted_total(known) if known and len(known) == len(parts) else None,
        )


class _Counts:
    """Audited and unchecked verdicts of one kind."""

    def __init__(self) -> None:
        self.num_unchecked = 0
        self._groups: defaultdict[int, list[int]] = defaultdict(lambda: [0, 0])

    def add(self, question: str, *, is_contradicted: bool) -> None:
        group = self._groups[crc32(question_key(question).encode(errors="replace")) % NUM_GROUPS]
        group[is_contradicted] += 1

    def merge(self, other: "_Counts") -> None:
        for key, (upheld, contradicted) in other._groups.items():
            self._groups[key][0] += upheld
            self._groups[key][1] += contradicted

    def share(self) -> Interval:
        return clustered_interval([[0.0] * no + [1.0] * yes for no, yes in self._groups.values()])

    def report(self) -> AuditedVerdict:
        num_audited = sum(map(sum, self._groups.values()))
        share = self.share() if num_audited else None
        return AuditedVerdict(
            num_audited=num_audited,
            num_contradicted=sum(group[1] for group in self._groups.values()),
            num_unchecked=self.num_unchecked,
            wrong_share=share,
            num_wrong=None if share is None else weighted_total([(share, self.num_unchecked)]),
        )
