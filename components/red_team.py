"""KFP component of `stages/red_team.py`: texts that VerifyRM pays without a right answer."""

from typing import List

from kfp import dsl
from kfp.dsl import Dataset, Input, Metrics, Model, Output

from components.images import GPU_IMAGE


@dsl.component(base_image=GPU_IMAGE, install_kfp_package=False)
def red_team(
    preset: str,
    verify_rm: Input[Model],
    problems: Input[Dataset],
    texts: Output[Dataset],
    report: Output[Metrics],
    overrides: List[str] = [],
    site: List[str] = [],
    checkpoint: Input[Model] = None,  # pyright: ignore[reportArgumentType]
) -> float:
    """Attack VerifyRM; returns the share of unseen problems on which the best universal text is paid.

    Args:
        preset: A preset's name or the path of a .toml file.
        verify_rm: What train_verify_rm wrote.
        problems: Held-out problems.
        texts: The texts that were found.
        report: Numbers of this stage, and its report as a file.
        overrides: dotted.key=value changes to the preset.
        site: Changes that hold for every run on this cluster, applied before `overrides`.
        checkpoint: What train_cooper wrote; its VerifyRM is attacked instead.
    """
    from pathlib import Path

    from cooper_rl.cluster.task import task
    from cooper_rl.stages import red_team as stage

    with task(preset, [*site, *overrides]) as config:
        result = stage.run(
            config,
            verify_rm=Path(verify_rm.path),
            problems=Path(problems.path),
            checkpoint=Path(checkpoint.path) if checkpoint else None,
            texts=Path(texts.path),
            report=Path(report.path),
        )
    report.metadata.update(result.metrics())
    return result.universal_rate
