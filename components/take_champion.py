"""KFP component of `stages/take_champion.py`: where a retraining starts, and what is new for it."""

from typing import List

from kfp import dsl
from kfp.dsl import Dataset, Input, Markdown, Metrics, Model, Output

from components.images import CPU_IMAGE


@dsl.component(base_image=CPU_IMAGE, install_kfp_package=False)
def take_champion(
    preset: str,
    prepared: Input[Model],
    collected: Input[Dataset],
    collected_held_out: Input[Dataset],
    models: Output[Model],
    problems: Output[Dataset],
    held_out: Output[Dataset],
    examples: Output[Dataset],
    attacks: Output[Dataset],
    summary: Output[Markdown],
    report: Output[Metrics],
    overrides: List[str] = [],
    site: List[str] = [],
) -> bool:
    """Take champion and frozen sets out of the registry; returns whether there is enough to learn.

    Args:
        preset: A preset's name or the path of a .toml file.
        prepared: What prepare_models wrote: the start where there is no champion.
        collected: Collected problems.
        collected_held_out: Collected problems that were held out.
        models: Folder with models.json and the champion's policy and VerifyRM.
        problems: The new problems, to train on.
        held_out: The frozen problems.
        examples: The frozen labelled examples; empty without a champion.
        attacks: Texts that red teams found before.
        summary: What was found, in words.
        report: Numbers of this stage, and its report as a file.
        overrides: dotted.key=value changes to the preset.
        site: Changes that hold for every run on this cluster, applied before `overrides`.
    """
    from pathlib import Path

    from cooper_rl.cluster.task import task
    from cooper_rl.stages import take_champion as stage

    with task(preset, [*site, *overrides]) as config:
        result = stage.run(
            config,
            prepared=Path(prepared.path),
            collected=Path(collected.path),
            collected_held_out=Path(collected_held_out.path),
            models=Path(models.path),
            problems=Path(problems.path),
            held_out=Path(held_out.path),
            examples=Path(examples.path),
            attacks=Path(attacks.path),
            summary=Path(summary.path),
            report=Path(report.path),
        )
    report.metadata.update(result.metrics())
    return result.is_worth_training
