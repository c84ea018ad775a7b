"""KFP component of `stages/report.py`: what the run has shown, for people."""

from typing import List

from kfp import dsl
from kfp.dsl import HTML, Artifact, Dataset, Input, Markdown, Metrics, Model, Output

from components.images import CPU_IMAGE


@dsl.component(base_image=CPU_IMAGE, install_kfp_package=False)
def report(
    preset: str,
    evaluations: Input[Dataset],
    completions: Input[Dataset],
    checkpoint: Input[Model],
    verify_rm_report: Input[Metrics],
    page: Output[HTML],
    summary: Output[Markdown],
    picture: Output[Artifact],
    report: Output[Metrics],
    overrides: List[str] = [],
    site: List[str] = [],
    label_report: Input[Metrics] = None,  # pyright: ignore[reportArgumentType]
    red_team: Input[Metrics] = None,  # pyright: ignore[reportArgumentType]
    frozen_evaluations: Input[Dataset] = None,  # pyright: ignore[reportArgumentType]
    frozen_completions: Input[Dataset] = None,  # pyright: ignore[reportArgumentType]
    frozen_checkpoint: Input[Model] = None,  # pyright: ignore[reportArgumentType]
    start_completions: Input[Dataset] = None,  # pyright: ignore[reportArgumentType]
):
    """Write the page and the summary of a run.

    Args:
        preset: A preset's name or the path of a .toml file.
        evaluations: The run's evaluations in order, from the starting point on.
        completions: What the last policy wrote on held-out problems.
        checkpoint: The last checkpoint, with the metrics and pairs of every step.
        verify_rm_report: The report of evaluate_verify_rm.
        page: One self-contained HTML page.
        summary: The same in short, as Markdown.
        picture: The page's first figure, as PNG.
        report: Numbers of the whole run, and the report as a file.
        overrides: dotted.key=value changes to the preset.
        site: Changes that hold for every run on this cluster, applied before `overrides`.
        label_report: The report of label_completions, where this run labelled.
        red_team: The report of red_team on the delivered VerifyRM, where it was attacked.
        frozen_evaluations: As `evaluations`, of the arm whose VerifyRM was frozen, where there is one.
        frozen_completions: As `completions`, of that arm.
        frozen_checkpoint: As `checkpoint`, of that arm.
        start_completions: As `completions`, of the starting point.
    """
    from pathlib import Path

    from cooper_rl.cluster.task import task
    from cooper_rl.stages import report as stage

    with task(preset, [*site, *overrides]) as config:
        result = stage.run(
            config,
            evaluations=Path(evaluations.path),
            completions=Path(completions.path),
            checkpoint=Path(checkpoint.path),
            label_report=Path(label_report.path) if label_report else None,
            red_team=Path(red_team.path) if red_team else None,
            frozen_evaluations=Path(frozen_evaluations.path) if frozen_evaluations else None,
            frozen_completions=Path(frozen_completions.path) if frozen_completions else None,
            frozen_checkpoint=Path(frozen_checkpoint.path) if frozen_checkpoint else None,
            verify_rm_report=Path(verify_rm_report.path),
            page=Path(page.path),
            start_completions=Path(start_completions.path) if start_completions else None,
            summary=Path(summary.path),
            picture=Path(picture.path),
            report=Path(report.path),
        )
    report.metadata.update(result.metrics())
