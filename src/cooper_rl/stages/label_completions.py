"""Stage: completions to labels (row 3) and to leak-free training, validation and test examples (row 4).

Rule verifier first, then the judges on every completion, or on those from which the rule abstains and on a
sample of the others (`labeling.judge_asked`), then the decision of `verdicts/hybrid.py`. The log says what
the judges take before any is asked. Rows are decided batch by batch, and wait on disk until all are: memory
does not depend on their number. Verdicts are kept in `<labels>.journal` as they come, and below `storage.uri`
where that is set: a run that was killed goes on without asking anyone twice.
Rows that cannot be used are set aside with the reason.
How an answer is compared is in `verdicts/answers/verify.py`, how a judge is asked in `servers/chat.py`, how
rows stream in `labels`. Imports no torch.
"""

import logging
import time
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Annotated

from cooper_rl.config.data import LabelingConfig
from cooper_rl.config.root import Config
from cooper_rl.domains.base import Domain
from cooper_rl.domains.open import find_domain
from cooper_rl.labels.kept import open_segments
from cooper_rl.labels.outputs import Decided, Outputs, write_outputs, write_shard
from cooper_rl.labels.rows import Inputs, Rows
from cooper_rl.labels.shards import is_in_shard
from cooper_rl.labels.voters import Judges, Voters
from cooper_rl.labels.workspace import Workspace, open_workspace
from cooper_rl.progress import Progress
from cooper_rl.records.files import write_report
from cooper_rl.records.rejected import set_aside
from cooper_rl.schema.paths import Input, OutputFile
from cooper_rl.schema.reports import LabelReport
from cooper_rl.servers.open import check_fits, open_judge
from cooper_rl.verdicts.journal import Journal

logger = logging.getLogger(__name__)


def run(
    config: Config,
    *,
    problems: Annotated[Path, Input("Problems that the completions answer")],
    completions: Annotated[Path, Input("Completions to label, or the file of --problems if it holds both")],
    labels: Annotated[
        Path,
        OutputFile("Where to write the audit: one row per completion, dropped ones included", ".journal"),
    ],
    train: Annotated[Path, OutputFile("Where to write the examples to train VerifyRM on")],
    validation: Annotated[Path, OutputFile("Where to write the examples that steer training")],
    test: Annotated[Path, OutputFile("Where to write the examples that only evaluation sees")],
    report: Annotated[Path, OutputFile("Where to write the report (JSON)", ".rejected.jsonl")],
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
            closing(Voters(config.labeling, domain, _open_judges(config, domain), journal)) as voters,
        ):
            _decide_all(work, voters)
        decided = Decided(work.rows.usable, work.labels, domain.name_answer_type)
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
    for key, judge in config.judges().items():
        check_fits(judge, (row.problem for row in rows.usable), key=key)


def _open_judges(config: Config, domain: Domain) -> Judges:
    first, third = config.labeling.judge, config.labeling.third_vote
    return Judges(
        first=open_judge(first, config.seed, domain) if first else None,
        others=tuple(open_judge(other, config.seed, domain) for other in config.labeling.other_judges),
        third=open_judge(third.judge, config.seed, domain) if third else None,
    )


def _decide_all(work: Workspace, voters: Voters) -> None:
    """Every batch is decided, its labels kept in order, once it is said what all of them take."""
    rows = work.rows
    logger.info("label_completions: %d completions of %d characters", len(rows), rows.num_chars)
    voters.announce(rows, work.index)
    progress = Progress("label_completions", len(rows), logger)
    for batch in rows.batches():
        for label in voters.decide(batch):
            work.labels.append(label)
        progress.advance(len(batch))
