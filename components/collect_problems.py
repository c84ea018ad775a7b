"""KFP component of `stages/collect_problems.py`: problems to train on and problems to evaluate on."""

from typing import List

from kfp import dsl
from kfp.dsl import Dataset, Metrics, Output

from components.images import CPU_IMAGE


@dsl.component(base_image=CPU_IMAGE, install_kfp_package=False)
def collect_problems(
    preset: str,
    problems: Output[Dataset],
    held_out: Output[Dataset],
    rejected: Output[Dataset],
    report: Output[Metrics],
    overrides: List[str] = [],
    site: List[str] = [],
):
    """Read or generate problems, set bad rows aside and hold some problems out for evaluation.

    Args:
        preset: A preset's name or the path of a .toml file.
        problems: Problems to train on.
        held_out: Problems for evaluation only.
        rejected: Rows that could not be used, each with its reason.
        report: Numbers of this stage, and its report as a file.
        overrides: dotted.key=value changes to the preset.
        site: Changes that hold for every run on this cluster, applied before `overrides`.
    """
    from pathlib import Path

    from cooper_rl.cluster.task import task
    from cooper_rl.stages import collect_problems as stage

    with task(preset, [*site, *overrides]) as config:
        result = stage.run(
            config,
            problems=Path(problems.path),
            held_out=Path(held_out.path),
            rejected=Path(rejected.path),
            report=Path(report.path),
        )
    report.metadata.update(result.metrics())
