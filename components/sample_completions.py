"""KFP component of `stages/sample_completions.py`: completions that VerifyRM will learn from."""

from typing import List

from kfp import dsl
from kfp.dsl import Dataset, Input, Metrics, Model, Output

from components.images import GPU_IMAGE


@dsl.component(base_image=GPU_IMAGE, install_kfp_package=False)
def sample_completions(
    preset: str,
    models: Input[Model],
    problems: Input[Dataset],
    completions: Output[Dataset],
    report: Output[Metrics],
    overrides: List[str] = [],
    site: List[str] = [],
):
    """Draw completions of the problems from every sampler.

    Args:
        preset: A preset's name or the path of a .toml file.
        models: What prepare_models wrote.
        problems: Problems to train on.
        completions: One row for each completion, problems in outer order.
        report: Numbers of this stage, and its report as a file.
        overrides: dotted.key=value changes to the preset.
        site: Changes that hold for every run on this cluster, applied before `overrides`.
    """
    from pathlib import Path

    from cooper_rl.cluster.task import task
    from cooper_rl.stages import sample_completions as stage

    with task(preset, [*site, *overrides]) as config:
        result = stage.run(
            config,
            models=Path(models.path),
            problems=Path(problems.path),
            completions=Path(completions.path),
            report=Path(report.path),
        )
    report.metadata.update(result.metrics())
