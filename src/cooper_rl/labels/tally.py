"""The numbers of the labelling report, counted row by row in bounded memory."""

from collections import Counter
from collections.abc import Callable

from cooper_rl.labels.rows import Row
from cooper_rl.schema.data import Label
from cooper_rl.verdicts.agreement import AgreementCounter
from cooper_rl.verdicts.audit import AuditCounter


class Tally:
    """Counts labels, how far the voters agree, and what a cascade's random check says."""

    def __init__(self, name_answer_type: Callable[[str], str] | None) -> None:
        """`name_answer_type`: as in `AgreementCounter`."""
        self.decisions: Counter[str] = Counter()
        self.num_correct = 0
        self.num_incorrect = 0
        self.agreement = AgreementCounter(name_answer_type)
        self.audit = AuditCounter()

    @property
    def num_labels(self) -> int:
        """All labels, dropped ones included."""
        return self.decisions.total()

    @property
    def num_labelled(self) -> int:
        """Labels that are kept."""
        return self.num_correct + self.num_incorrect

    def add(self, row: Row, label: Label) -> None:
        """Count the label of a row."""
        self.decisions[label.reason] += 1
        self.num_correct += label.is_correct is True
        self.num_incorrect += label.is_correct is False
        self.agreement.add(label, reference_answer=row.problem.reference_answer)
        self.audit.add(label, question=row.problem.question)
