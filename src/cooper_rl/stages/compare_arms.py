"""Stage: one page that compares several arms and seeds, each trained from the same start.

The command `experiment` trains them on one machine and writes the same page (`comparison/`). This stage reads
what the tasks of a pipeline wrote.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from cooper_rl.comparison.files import Evaluated, Files, RunFiles
from cooper_rl.comparison.page import to_markdown, write_page
from cooper_rl.comparison.summary import ExperimentReport, summarise
from cooper_rl.config.root import Config
from cooper_rl.errors import ConfigError, DataError
from cooper_rl.records.files import write_report, write_text
from cooper_rl.report.page import settings
from cooper_rl.report.provenance import describe
from cooper_rl.schema.paths import Input, Inputs, OutputFile


def run(
    config: Config,
    *,
    checkpoints: Annotated[
        list[Path], Inputs("Last checkpoint of every run, in the order of experiment.runs")
    ],
    reports: Annotated[list[Path], Inputs("Report of every run's last evaluation (JSON), in that order")],
    completions: Annotated[
        list[Path], Inputs("Evaluated completions of those evaluations (JSONL), in that order")
    ],
    start_report: Annotated[Path, Input("Report of the starting point's evaluation (JSON)")],
    start_completions: Annotated[Path, Input("Evaluated completions of the starting point (JSONL)")],
    page: Annotated[Path, OutputFile("Where to write the page (HTML)")],
    summary: Annotated[Path, OutputFile("Where to write the summary (Markdown)")],
    report: Annotated[Path, OutputFile("Where to write the report (JSON)")],
) -> ExperimentReport:
    """Compare arms over seeds.

    Raises:
        ConfigError: experiment.runs is empty, or an arm in it is unknown or does not fit the configuration.
        DataError: a file is missing, malformed or of another run, or there are more or fewer than runs.
        StorageError: the store of the checkpoints cannot be used.
    """
    files = Files(
        Evaluated(start_report, start_completions), _runs(config, checkpoints, reports, completions)
    )
    result = summarise(files, config)
    write_page(result, page, files=files, origin=describe(settings(config)))
    write_text(summary, to_markdown(result))
    write_report(report, result)
    return result


def _runs(
    config: Config, checkpoints: Sequence[Path], reports: Sequence[Path], completions: Sequence[Path]
) -> list[RunFiles]:
    runs = config.experiment.runs
    if not runs:
        raise ConfigError(
            "experiment.runs is empty; name the runs in the order of --checkpoints, for example "
            '--set \'experiment.runs=[{arm="rule", seed=0}, {arm="cooper", seed=0}]\''
        )
    given = {"checkpoints": checkpoints, "reports": reports, "completions": completions}
    for name, paths in given.items():
        if len(paths) != len(runs):
            raise DataError(
                f"--{name}: {len(paths)} paths for the {len(runs)} runs of experiment.runs; give one of each"
            )
    return [
        RunFiles(run.arm, run.seed, checkpoint, Evaluated(end, written))
        for run, checkpoint, end, written in zip(runs, checkpoints, reports, completions, strict=True)
    ]
