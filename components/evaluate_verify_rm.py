"""KFP component of `stages/evaluate_verify_rm.py`: VerifyRM on examples that it has not seen."""

from typing import List

from kfp import dsl
from kfp.dsl import ClassificationMetrics, Dataset, Input, Metrics, Model, Output

from components.images import GPU_IMAGE


@dsl.component(base_image=GPU_IMAGE, install_kfp_package=False)
def evaluate_verify_rm(
    preset: str,
    verify_rm: Input[Model],
    examples: Input[Dataset],
    rejected: Output[Dataset],
    report: Output[Metrics],
    curves: Output[ClassificationMetrics],
    overrides: List[str] = [],
    site: List[str] = [],
) -> float:
    """Evaluate VerifyRM on held-out labelled examples; returns its accuracy.

    Args:
        preset: A preset's name or the path of a .toml file.
        verify_rm: What train_verify_rm wrote.
        examples: Labelled examples that training has not seen.
        rejected: Rows that could not be used, each with its reason.
        report: Numbers of this stage, and its report as a file.
        curves: ROC curve and confusion matrix.
        overrides: dotted.key=value changes to the preset.
        site: Changes that hold for every run on this cluster, applied before `overrides`.
    """
    from pathlib import Path

    from cooper_rl.cluster.task import task
    from cooper_rl.stages import evaluate_verify_rm as stage

    with task(preset, [*site, *overrides]) as config:
        result = stage.run(
            config,
            verify_rm=Path(verify_rm.path),
            examples=Path(examples.path),
            rejected=Path(rejected.path),
            report=Path(report.path),
        )
    report.metadata.update(result.metrics())
    for false_positive_rate, true_positive_rate, threshold in result.roc:
        curves.log_roc_data_point(false_positive_rate, true_positive_rate, threshold)
    counts = result.confusion
    curves.log_confusion_matrix(
        ["incorrect", "correct"],
        [
            [counts["true_negative"], counts["false_positive"]],
            [counts["false_negative"], counts["true_positive"]],
        ],
    )
    # Everything is in the metadata, but kfp.local's cache takes an artifact without a file for a lost one.
    Path(curves.path).touch()
    return result.overall.accuracy.value
