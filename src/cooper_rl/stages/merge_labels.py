"""Stage: the labels of several pods become those of one labelling (rows 3 and 4).

`label_completions` with `labeling.shard` labels the questions of one shard. This stage reads problems and
completions again, puts the labels of all shards in the order of the rows, and deals the questions out: its
files are those that a single process would have written. Nobody is asked anything.
"""

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from cooper_rl.config.root import Config
from cooper_rl.domains.open import find_domain
from cooper_rl.errors import DataError
from cooper_rl.labels.merging import add_usages, merge
from cooper_rl.labels.outputs import Decided, Outputs, write_outputs
from cooper_rl.labels.rows import Inputs as LabelInputs
from cooper_rl.labels.workspace import open_workspace
from cooper_rl.records.files import read_report, write_report
from cooper_rl.records.rejected import set_aside
from cooper_rl.schema.paths import Input, Inputs, OutputFile
from cooper_rl.schema.reports import LabelReport


def run(
    config: Config,
    *,
    problems: Annotated[Path, Input("Problems that the completions answer")],
    completions: Annotated[Path, Input("Completions that were labelled, or the file of --problems")],
    shards: Annotated[list[Path], Inputs("Labels of every shard, in the order of their numbers")],
    reports: Annotated[list[Path], Inputs("Reports of the shards")],
    labels: Annotated[
        Path, OutputFile("Where to write the audit: one row per completion, dropped ones included")
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
    """Put the labels of all shards together, and split the labelled completions by question.

    Raises:
        DataError: the labels are not those of these completions, or too few questions are labelled to split.
    """
    started = time.monotonic()
    if len(set(map(os.path.realpath, reports))) != len(shards):
        raise DataError(
            f"{len(shards)} shards and the reports {', '.join(map(str, reports))}: calls and tokens would be "
            "those of some; give the report of every shard once"
        )
    domain = find_domain(config.problems.domain)
    with open_workspace(
        LabelInputs(problems, completions, frozen), find_reference_fault=domain.find_reference_fault
    ) as work:
        set_aside(report, work.rows.rejected, rejected=rejected)
        found = [read_report(path, LabelReport) for path in reports]
        for label in merge(work.rows.usable, shards, digests={each.digest for each in found}):
            work.labels.append(label)
        done = write_outputs(
            Decided(work.rows.usable, work.labels, domain.name_answer_type),
            config,
            Outputs(labels, train, validation, test),
            frozen=frozen,
            index=work.index,
        )
        num_rejected = len(work.rows.rejected)
    seconds = time.monotonic() - started
    result = done.report(config.labeling, num_rejected=num_rejected, seconds=seconds)
    result = result.model_copy(update=_add(found))
    write_report(report, result)
    return result


def _add(found: Sequence[LabelReport]) -> dict[str, object]:
    """Fields of the report that only the shards know."""
    others = {name: None for report in found for name in report.other_judges_usage}
    return {
        "judge_model": next((report.judge_model for report in found if report.judge_model), None),
        "judge_usage": add_usages(report.judge_usage for report in found),
        "third_judge_usage": add_usages(report.third_judge_usage for report in found),
        "other_judges_usage": {
            name: add_usages(report.other_judges_usage.get(name) for report in found) for name in others
        },
        "num_known_verdicts": sum(report.num_known_verdicts for report in found),
    }
