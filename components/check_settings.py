"""KFP component of `stages/check_settings.py`: the first task, before anything is trained or paid for."""

from typing import List

from kfp import dsl
from kfp.dsl import Metrics, Output

from components.images import CPU_IMAGE


@dsl.component(base_image=CPU_IMAGE, install_kfp_package=False)
def check_settings(
    preset: str,
    report: Output[Metrics],
    overrides: List[str] = [],
    site: List[str] = [],
    run_key: str = "",
    run_id: str = "",
    arm: List[str] = [],
):
    """Read the whole configuration, and see that the stores it names can be used.

    Args:
        preset: A preset's name or the path of a .toml file.
        report: Numbers of this stage, and its report as a file.
        overrides: dotted.key=value changes to the preset.
        site: Changes that hold for every run on this cluster, applied before `overrides`.
        run_key: Name that checkpoints of the run are kept under.
        run_id: Kubeflow's id of the run, the name where run_key is empty.
        arm: Changes of this task alone, applied last: the runs of an experiment, to be checked.
    """
    from pathlib import Path

    from cooper_rl.cluster.task import task
    from cooper_rl.stages import check_settings as stage

    with task(preset, [*site, *overrides, *arm], run_key=run_key, run_id=run_id) as config:
        result = stage.run(config, report=Path(report.path))
    report.metadata.update(result.metrics())
