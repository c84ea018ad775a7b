"""KFP component of `stages/promote.py`: a candidate becomes the champion, or does not."""

from typing import List

from kfp import dsl
from kfp.dsl import Dataset, Input, Markdown, Metrics, Model, Output

from components.images import CPU_IMAGE


@dsl.component(base_image=CPU_IMAGE, install_kfp_package=False)
def promote(
    preset: str,
    checkpoint: Input[Model],
    evaluations: Input[Dataset],
    completions: Input[Dataset],
    problems: Input[Dataset],
    held_out: Input[Dataset],
    examples: Input[Dataset],
    summary: Output[Markdown],
    report: Output[Metrics],
    overrides: List[str] = [],
    site: List[str] = [],
    run_key: str = "",
    run_id: str = "",
    red_team: Input[Metrics] = None,  # pyright: ignore[reportArgumentType]
) -> bool:
    """Compare the candidate with the champion, and promote it or not; returns which.

    Args:
        preset: A preset's name or the path of a .toml file.
        checkpoint: The candidate, which train_cooper wrote.
        evaluations: Evaluations of its run; the last one is the candidate's.
        completions: Evaluated completions of the candidate.
        problems: Problems that it was trained on.
        held_out: Frozen problems that it was evaluated on.
        examples: Frozen labelled examples that its VerifyRM was evaluated on.
        summary: The decision in words.
        report: The decision: its numbers, and all of it as a file.
        overrides: dotted.key=value changes to the preset.
        site: Changes that hold for every run on this cluster, applied before `overrides`.
        run_key: Name of the run, which the registry keeps, unless overrides set storage.run_key.
        run_id: Kubeflow's id of the run, the name where run_key is empty.
        red_team: The report of red_team on the candidate, for registry.max_universal_rate.
    """
    from pathlib import Path

    from cooper_rl.cluster.task import task
    from cooper_rl.stages import promote as stage

    with task(preset, [*site, *overrides], run_key=run_key, run_id=run_id) as config:
        result = stage.run(
            config,
            checkpoint=Path(checkpoint.path),
            evaluations=Path(evaluations.path),
            completions=Path(completions.path),
            problems=Path(problems.path),
            held_out=Path(held_out.path),
            examples=Path(examples.path),
            red_team=Path(red_team.path) if red_team else None,
            summary=Path(summary.path),
            report=Path(report.path),
        )
    report.metadata.update(result.metrics())
    return result.is_promoted
