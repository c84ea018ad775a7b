"""Everybody who says something about a completion: rule verifier, judges and third vote (row 3)."""

import sqlite3
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from cooper_rl.config.data import LabelingConfig
from cooper_rl.domains.base import Domain
from cooper_rl.labels.rows import Row, Rows
from cooper_rl.schema.data import Label
from cooper_rl.verdicts.hybrid import Judge, JudgeItem, StreamingJudge
from cooper_rl.verdicts.journal import Journal
from cooper_rl.verdicts.votes import Batch, Electorate, Votes, announce_votes, collect_votes


class Judges(NamedTuple):
    """Judges that are open; None where nobody is to be asked."""

    first: Judge | None
    others: Sequence[Judge]
    third: Judge | None

    @property
    def names(self) -> str | None:
        """The names of the first judge and the others."""
        return " + ".join(each.name for each in (self.first, *self.others) if each is not None) or None


class Voters:
    """Opened once, asked batch by batch."""

    def __init__(self, config: LabelingConfig, domain: Domain, judges: Judges, journal: Journal) -> None:
        self._judges = judges
        self._electorate = Electorate(
            config,
            verifier=domain.open_verifier(config.rule),
            verdict_name=domain.name_verdicts(config.rule),
            judge=judges.first,
            third_judge=judges.third,
            journal=journal,
            other_judges=judges.others,
        )
        self._num_known = 0
        self._answered: set[str] = set()

    def close(self) -> None:
        """End the rule verifier's processes."""
        self._electorate.verifier.close()

    def announce(self, rows: Rows, index: sqlite3.Connection) -> None:
        """Say what the judges take for all rows; nobody but the rule verifier is asked.

        Args:
            rows: Read from disk, once for each judge.
            index: Tells the texts that stand there twice.
        """
        index.execute("CREATE TABLE announced (key TEXT PRIMARY KEY) WITHOUT ROWID")

        def read_batches() -> Iterator[Batch]:
            return (_read(batch) for batch in rows.batches())

        def is_new(key: str) -> bool:
            return index.execute("INSERT OR IGNORE INTO announced VALUES (?)", [key]).rowcount == 1

        announce_votes(read_batches, self._electorate, is_new=is_new)

    def decide(self, rows: Sequence[Row]) -> list[Label]:
        """The labels of completions, in order."""
        batch = _read(rows)
        ballot = collect_votes(
            batch.items,
            self._electorate,
            finish_reasons=batch.finish_reasons,
            answered=self._answered,
            is_announced=True,
        )
        self._num_known += ballot.num_known
        self._note_answers(ballot.votes)
        return [
            _decide(row, votes, self._judges.names, self._electorate.config)
            for row, votes in zip(rows, ballot.votes, strict=True)
        ]

    def spent(self) -> dict[str, object]:
        """Fields of the report: who was asked, and what that took."""
        first, others, third = self._judges
        return {
            "judge_model": self._judges.names,
            "judge_usage": first.usage if isinstance(first, StreamingJudge) else None,
            "third_judge_usage": third.usage if isinstance(third, StreamingJudge) else None,
            "other_judges_usage": {
                f"judge_{number}": other.usage
                for number, other in enumerate(others, start=2)
                if isinstance(other, StreamingJudge)
            },
            "num_known_verdicts": self._num_known,
        }

    def _note_answers(self, votes: Sequence[Votes]) -> None:
        """Note the judges that answered: they count as reachable, even if a later batch fails whole."""
        first, others, third = self._judges
        panel = [] if first is None else [first, *others]
        for place, member in enumerate(panel):
            if any(vote.panel and vote.panel[place].failure is None for vote in votes):
                self._answered.add(member.identity)
        if third and any(vote.third and vote.third.failure is None for vote in votes):
            self._answered.add(third.identity)


def _read(rows: Sequence[Row]) -> Batch:
    return Batch(
        [JudgeItem(row.problem.question, row.problem.reference_answer, row.completion.text) for row in rows],
        [row.completion.finish_reason for row in rows],
    )


def _decide(row: Row, votes: Votes, judge_model: str | None, config: LabelingConfig) -> Label:
    decision = votes.decide(config)
    return Label(
        completion_id=row.completion.id,
        rule=votes.rule.verdict,
        rule_reason=votes.rule.reason,
        judge=votes.judge.verdict if votes.judge else None,
        judge_model=judge_model if votes.judge else None,
        judge_reason=votes.judge.reason if votes.judge else None,
        judge_failure=votes.judge.failure if votes.judge else None,
        third=votes.third.verdict if votes.third else None,
        third_voter=votes.third_voter,
        third_reason=votes.third.reason if votes.third else None,
        third_failure=votes.third.failure if votes.third else None,
        judges=votes.panel if len(votes.panel) > 1 else (),
        is_correct=decision.is_correct,
        reason=decision.reason,
    )
