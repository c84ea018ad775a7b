"""The numbers of the labelling report, counted row by row."""

import hashlib
from collections import Counter
from typing import NamedTuple

from cooper_rl.method.intervals import clustered_interval
from cooper_rl.schema.data import Label, LabelAudit


class _Audited(NamedTuple):
    num_alike: int = 0
    num_differing: int = 0


class Tally:
    """Counts labels. Of each audited question some 300 bytes stay in memory; of the others, nothing."""

    def __init__(self) -> None:
        self.decisions: Counter[str] = Counter()
        self.num_correct = 0
        self.num_incorrect = 0
        self._num_unchecked = 0
        self._audited: dict[bytes, _Audited] = {}

    @property
    def num_labels(self) -> int:
        """All of them, dropped ones included."""
        return self.decisions.total()

    @property
    def num_labelled(self) -> int:
        """Those that are kept."""
        return self.num_correct + self.num_incorrect

    def add(self, question: str, label: Label) -> None:
        """Count the label of a completion that answers this question."""
        self.decisions[label.reason] += 1
        self.num_correct += label.is_correct is True
        self.num_incorrect += label.is_correct is False
        if label.rule == "unparsable":
            return
        if label.judge is None:
            self._num_unchecked += 1
        elif label.judge != "unparsable":
            self._add_audited(question, is_differing=label.judge != label.rule)

    def _add_audited(self, question: str, *, is_differing: bool) -> None:
        key = hashlib.blake2b(question.encode(), digest_size=16).digest()
        alike, differing = self._audited.get(key, _Audited())
        self._audited[key] = _Audited(alike + (not is_differing), differing + is_differing)

    def audit(self) -> LabelAudit | None:
        """What the judge's random check of decisive rule verdicts says; None where it checked nothing."""
        if not self._audited:
            return None
        outcomes = [[0.0] * alike + [1.0] * differing for alike, differing in self._audited.values()]
        return LabelAudit(
            num_audited=sum(map(len, outcomes)),
            num_unchecked=self._num_unchecked,
            differing_share=clustered_interval(outcomes),
        )
