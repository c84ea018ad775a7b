"""Stage: completions to labels (row 3) and to leak-free training, validation and test examples (row 4).

Rule verifier first, then the judge on every completion, or on those from which the rule abstains and on a
sample of the others (`labeling.judge_asked`), then the decision of `verdicts/hybrid.py`. Rows are decided
batch by batch, and wait on disk until all are: memory does not depend on their number. Verdicts
are kept in `<labels>.journal` as they come, and below `storage.uri` where that is set: a run that was killed
goes on without asking anyone twice.
Rows that cannot be used are set aside with the reason.
How an answer is compared is in `verdicts/answers/verify.py`, how a judge is asked in `servers/chat.py`, how
rows stream in `labels`. Imports no torch.
"""

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Annotated

from cooper_rl.config.data import LabelingConfig
from cooper_rl.config.root import Config
from cooper_rl.domains.base import Domain
from cooper_rl.domains.open import find_domain
from cooper_rl.labels.kept import open_segments
from cooper_rl.labels.outputs import Decided, Outputs, write_outputs, write_shard
from cooper_rl.labels.rows import Inputs, Row, Rows
from cooper_rl.labels.shards import is_in_shard
from cooper_rl.labels.spool import Spool
from cooper_rl.labels.workspace import open_workspace
from cooper_rl.progress import Progress
from cooper_rl.records.files import write_report
from cooper_rl.records.rejected import set_aside
from cooper_rl.schema.data import Label, LabelReport
from cooper_rl.schema.paths import Input, OutputFile
from cooper_rl.servers.open import check_fits, open_judge
from cooper_rl.verdicts.hybrid import JudgeItem, StreamingJudge, decide
from cooper_rl.verdicts.journal import Journal
from cooper_rl.verdicts.votes import Votes, collect_votes

logger = logging.getLogger(__name__)


def run(
    config: Config,
    *,
    problems: Annotated[Path, Input("Problems that the completions answer")],
    completions: Annotated[Path, Input("Completions to label, or the file of --problems if it holds both")],
    labels: Annotated[
        Path, OutputFile("Where to write the audit: one row per completion, dropped ones included")
    ],
    train: Annotated[Path, OutputFile("Where to write the examples to train VerifyRM on")],
    validation: Annotated[Path, OutputFile("Where to write the examples that steer training")],
    test: Annotated[Path, OutputFile("Where to write the examples that only evaluation sees")],
    report: Annotated[Path, OutputFile("Where to write the report (JSON)")],
    frozen: Annotated[
        Path | None,
        Input("Test examples of an earlier run, used in place of new ones; an empty file: none are"),
    ] = None,
    rejected: Annotated[
        Path | None,
        OutputFile("Where to write rows that cannot be used (absent: <report>.rejected.jsonl, if any)"),
    ] = None,
) -> LabelReport:
    """Label every completion, keep the reason of every decision, and split the labelled ones by question.

    Raises:
        ConfigError: the laptop's judge is configured for problems of another source.
        DataError: no usable problem or completion, too few labelled questions to split, or a frozen question
            among them.
        ServerError: the judge cannot be used; what it said so far is kept.
        StorageError: the store of verdicts cannot be used.
    """
    started = time.monotonic()
    outputs = Outputs(labels, train, validation, test)
    domain = find_domain(config.problems.domain)
    shard = config.labeling.shard
    with open_workspace(
        Inputs(problems, completions, frozen),
        find_reference_fault=domain.find_reference_fault,
        is_ours=lambda question: shard is None or is_in_shard(question, shard),
    ) as work:
        set_aside(report, work.rows.rejected, rejected=rejected)
        _check_judges(config.labeling, work.rows)
        with (
            open_segments(config.storage, domain.name) or nullcontext() as segments,
            Journal(labels.with_name(labels.name + ".journal"), segments) as journal,
            closing(_Voters(config, domain, journal)) as voters,
        ):
            _decide_all(work.rows, voters.decide, work.labels)
        decided = Decided(work.rows.usable, work.labels)
        if shard is not None:
            done = write_shard(decided, outputs)
        else:
            done = write_outputs(decided, config, outputs, frozen=frozen, index=work.index)
        num_rejected = len(work.rows.rejected)
    seconds = time.monotonic() - started
    result = done.report(config.labeling, num_rejected=num_rejected, seconds=seconds).model_copy(
        update=voters.spent()
    )
    write_report(report, result)
    return result


def _check_judges(config: LabelingConfig, rows: Rows) -> None:
    problems = (row.problem for row in rows.usable)
    check_fits(config.judge, problems, key="labeling.judge")
    if config.third_vote is not None:
        check_fits(config.third_vote.judge, problems, key="labeling.third_vote.judge")


def _decide_all(rows: Rows, decide: Callable[[Sequence[Row]], list[Label]], decided: Spool[Label]) -> None:
    """A call of `decide` for every batch, its labels kept in order."""
    logger.info("label_completions: %d completions of %d characters", len(rows), rows.num_chars)
    progress = Progress("label_completions", len(rows), logger)
    for batch in rows.batches():
        for label in decide(batch):
            decided.append(label)
        progress.advance(len(batch))


class _Voters:
    """Everybody who says something about a completion; opened once, asked batch by batch."""

    def __init__(self, config: Config, domain: Domain, journal: Journal) -> None:
        labeling, third = config.labeling, config.labeling.third_vote
        self._config = labeling
        self._journal = journal
        self._verdict_name = domain.name_verdicts(labeling.rule)
        self._verifier = domain.open_verifier(labeling.rule)
        self.judge = open_judge(labeling.judge, config.seed, domain) if labeling.judge else None
        self.third_judge = open_judge(third.judge, config.seed, domain) if third is not None else None
        self.num_known = 0
        self._answered: set[str] = set()

    def close(self) -> None:
        """End the rule verifier's processes."""
        self._verifier.close()

    def decide(self, batch: Sequence[Row]) -> list[Label]:
        """The labels of completions, in order."""
        ballot = collect_votes(
            [
                JudgeItem(row.problem.question, row.problem.reference_answer, row.completion.text)
                for row in batch
            ],
            self._config,
            verifier=self._verifier,
            verdict_name=self._verdict_name,
            judge=self.judge,
            third_judge=self.third_judge,
            journal=self._journal,
            finish_reasons=[row.completion.finish_reason for row in batch],
            answered=self._answered,
        )
        self.num_known += ballot.num_known
        self._note_answers(ballot.votes)
        judge_model = self.judge.name if self.judge else None
        return [
            _decide(row, votes, judge_model, self._config)
            for row, votes in zip(batch, ballot.votes, strict=True)
        ]

    def spent(self) -> dict[str, object]:
        """Fields of the report: who was asked, and what that took."""
        judge, third_judge = self.judge, self.third_judge
        return {
            "judge_model": judge.name if judge else None,
            "judge_usage": judge.usage if isinstance(judge, StreamingJudge) else None,
            "third_judge_usage": third_judge.usage if isinstance(third_judge, StreamingJudge) else None,
            "num_known_verdicts": self.num_known,
        }

    def _note_answers(self, votes: Sequence[Votes]) -> None:
        """Who answered once is there, even where all requests of a later, small batch fail."""
        if self.judge and any(vote.judge and vote.judge.failure is None for vote in votes):
            self._answered.add(self.judge.identity)
        if self.third_judge and any(vote.third and vote.third.failure is None for vote in votes):
            self._answered.add(self.third_judge.identity)


def _decide(row: Row, votes: Votes, judge_model: str | None, config: LabelingConfig) -> Label:
    judge = votes.judge.verdict if votes.judge else None
    third = votes.third.verdict if votes.third else None
    decision = decide(votes.rule.verdict, judge, third, unparsable_rule=config.unparsable_rule)
    return Label(
        completion_id=row.completion.id,
        rule=votes.rule.verdict,
        rule_reason=votes.rule.reason,
        judge=judge,
        judge_model=judge_model if votes.judge else None,
        judge_reason=votes.judge.reason if votes.judge else None,
        judge_failure=votes.judge.failure if votes.judge else None,
        third=third,
        third_voter=votes.third_voter,
        is_correct=decision.is_correct,
        reason=decision.reason,
    )
