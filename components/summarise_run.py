"""KFP component of `stages/summarise_run.py`: the exit task, which runs however the pipeline ended."""

from typing import List

from kfp import dsl
from kfp.dsl import Markdown, Metrics, Output, PipelineTaskFinalStatus

from components.images import CPU_IMAGE


@dsl.component(base_image=CPU_IMAGE, install_kfp_package=False)
def summarise_run(
    preset: str,
    status: PipelineTaskFinalStatus,
    summary: Output[Markdown],
    report: Output[Metrics],
    overrides: List[str] = [],
    site: List[str] = [],
    run_key: str = "",
    run_id: str = "",
    arm: List[str] = [],
):
    """Say how the run ended, which checkpoints it left, and how to go on.

    Args:
        preset: A preset's name or the path of a .toml file.
        status: How the tasks before it ended; Kubeflow fills it in.
        summary: What a person needs to know, as Markdown.
        report: The same in numbers, and the report as a file.
        overrides: dotted.key=value changes to the preset.
        site: Changes that hold for every run on this cluster, applied before `overrides`.
        run_key: Name that checkpoints of the run are kept under.
        run_id: Kubeflow's id of the run, the name where run_key is empty.
        arm: Changes of this task alone, applied last: the runs of an experiment, whose checkpoints it names.
    """
    import json
    from pathlib import Path

    from cooper_rl.stages import summarise_run as stage

    changes = [*site, *overrides, *arm]
    config, problem = stage.load_if_valid(preset, changes, run_key=run_key, run_id=run_id)
    message = problem or status.error_message or ""
    ending = {"state": status.state, "run": status.pipeline_job_resource_name, "message": message}
    Path(f"{summary.path}.status").write_text(json.dumps(ending), encoding="utf-8")
    result = stage.run(
        config, status=Path(f"{summary.path}.status"), summary=Path(summary.path), report=Path(report.path)
    )
    report.metadata.update(result.metrics())
