"""KFP component of `stages/prepare_models.py`: the models that the run starts from."""

from typing import List

from kfp import dsl
from kfp.dsl import Metrics, Model, Output

from components.images import CPU_IMAGE


@dsl.component(base_image=CPU_IMAGE, install_kfp_package=False)
def prepare_models(
    preset: str,
    models: Output[Model],
    report: Output[Metrics],
    overrides: List[str] = [],
    site: List[str] = [],
):
    """Name the models that the run starts from; on the laptop, train them from scratch.

    Args:
        preset: A preset's name or the path of a .toml file.
        models: Folder with models.json and the models that were made here.
        report: Numbers of this stage, and its report as a file.
        overrides: dotted.key=value changes to the preset.
        site: Changes that hold for every run on this cluster, applied before `overrides`.
    """
    from pathlib import Path

    from cooper_rl.cluster.task import task
    from cooper_rl.stages import prepare_models as stage

    with task(preset, [*site, *overrides]) as config:
        result = stage.run(config, models=Path(models.path), report=Path(report.path))
    report.metadata.update(result.metrics())
