"""KFP component of `stages/compare_arms.py`: what several arms have shown, for people."""

from typing import List

from kfp import dsl
from kfp.dsl import HTML, Dataset, Input, Markdown, Metrics, Model, Output

from components.images import CPU_IMAGE


@dsl.component(base_image=CPU_IMAGE, install_kfp_package=False)
def compare_arms(
    preset: str,
    checkpoints: Input[List[Model]],
    reports: Input[List[Metrics]],
    completions: Input[List[Dataset]],
    start_report: Input[Metrics],
    start_completions: Input[Dataset],
    page: Output[HTML],
    summary: Output[Markdown],
    report: Output[Metrics],
    overrides: List[str] = [],
    site: List[str] = [],
    arm: List[str] = [],
):
    """Compare arms and seeds that were trained from one start.

    Args:
        preset: A preset's name or the path of a .toml file.
        checkpoints: The last checkpoint of every run, in the order of experiment.runs.
        reports: What evaluate_policy says of every run's end.
        completions: What every run's policy wrote there.
        start_report: What evaluate_policy says of the starting point.
        start_completions: What the policy wrote there.
        page: One self-contained HTML page.
        summary: The same in short, as Markdown.
        report: Accuracy of every arm, and the report as a file.
        overrides: dotted.key=value changes to the preset.
        site: Changes that hold for every run on this cluster, applied before `overrides`.
        arm: Changes of this task alone, applied last: the runs that were trained.
    """
    from pathlib import Path

    from cooper_rl.cluster.task import task
    from cooper_rl.stages import compare_arms as stage

    with task(preset, [*site, *overrides, *arm]) as config:
        result = stage.run(
            config,
            checkpoints=[Path(each.path) for each in checkpoints],
            reports=[Path(each.path) for each in reports],
            completions=[Path(each.path) for each in completions],
            start_report=Path(start_report.path),
            start_completions=Path(start_completions.path),
            page=Path(page.path),
            summary=Path(summary.path),
            report=Path(report.path),
        )
    report.metadata.update(result.metrics())
