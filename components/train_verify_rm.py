"""KFP component of `stages/train_verify_rm.py`: the reference-based reward model."""

from typing import List

from kfp import dsl
from kfp.dsl import Dataset, Input, Metrics, Model, Output

from components.images import GPU_IMAGE


@dsl.component(base_image=GPU_IMAGE, install_kfp_package=False)
def train_verify_rm(
    preset: str,
    train: Input[Dataset],
    validation: Input[Dataset],
    verify_rm: Output[Model],
    rejected: Output[Dataset],
    report: Output[Metrics],
    overrides: List[str] = [],
    site: List[str] = [],
    models: Input[Model] = None,  # pyright: ignore[reportArgumentType]
    attacks: Input[Dataset] = None,  # pyright: ignore[reportArgumentType]
    arm: List[str] = [],
) -> float:
    """Train VerifyRM on labelled examples; returns its validation accuracy.

    Args:
        preset: A preset's name or the path of a .toml file.
        train: Examples to learn from.
        validation: Examples that steer the training.
        verify_rm: Folder of the trained sequence classifier.
        rejected: Rows that could not be used, each with its reason.
        report: Numbers of this stage, and its report as a file.
        overrides: dotted.key=value changes to the preset.
        site: Changes that hold for every run on this cluster, applied before `overrides`.
        models: What prepare_models wrote; without it VerifyRM starts from scratch.
        attacks: Texts of red_team, learned as wrong completions.
        arm: Changes of this task alone, applied last: what makes it another VerifyRM than Cooper's.
    """
    from pathlib import Path

    from cooper_rl.cluster.task import task
    from cooper_rl.stages import train_verify_rm as stage

    with task(preset, [*site, *overrides, *arm]) as config:
        result = stage.run(
            config,
            train=Path(train.path),
            validation=Path(validation.path),
            models=Path(models.path) if models else None,
            attacks=Path(attacks.path) if attacks else None,
            verify_rm=Path(verify_rm.path),
            rejected=Path(rejected.path),
            report=Path(report.path),
        )
    report.metadata.update(result.metrics())
    return result.validation.accuracy.value
