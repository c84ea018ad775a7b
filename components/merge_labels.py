"""KFP component of `stages/merge_labels.py`: the labels of several pods become those of one labelling."""

from typing import List

from kfp import dsl
from kfp.dsl import Dataset, Input, Metrics, Output

from components.images import CPU_IMAGE


@dsl.component(base_image=CPU_IMAGE, install_kfp_package=False)
def merge_labels(
    preset: str,
    problems: Input[Dataset],
    completions: Input[Dataset],
    shards: Input[List[Dataset]],
    reports: Input[List[Metrics]],
    labels: Output[Dataset],
    train: Output[Dataset],
    validation: Output[Dataset],
    test: Output[Dataset],
    rejected: Output[Dataset],
    report: Output[Metrics],
    overrides: List[str] = [],
    site: List[str] = [],
    frozen: Input[Dataset] = None,  # pyright: ignore[reportArgumentType]
):
    """Put the labels of all shards together, and split them by problem.

    Args:
        preset: A preset's name or the path of a .toml file.
        problems: Problems that the completions belong to.
        completions: What sample_completions wrote.
        shards: Labels of every shard, in the order of their numbers.
        reports: What each shard says of its work.
        labels: One decision for each completion, the dropped ones included.
        train: Examples that VerifyRM learns from.
        validation: Examples that steer its training.
        test: Examples that only its evaluation sees.
        rejected: Rows that could not be used, each with its reason.
        report: Numbers of the whole labelling, and its report as a file.
        overrides: dotted.key=value changes to the preset.
        site: Changes that hold for every run on this cluster, applied before `overrides`.
        frozen: Test examples of an earlier run, used in place of new ones; an empty file: none are.
    """
    from pathlib import Path

    from cooper_rl.cluster.task import task
    from cooper_rl.stages import merge_labels as stage

    with task(preset, [*site, *overrides]) as config:
        result = stage.run(
            config,
            problems=Path(problems.path),
            completions=Path(completions.path),
            shards=[Path(each.path) for each in shards],
            reports=[Path(each.path) for each in reports],
            labels=Path(labels.path),
            train=Path(train.path),
            validation=Path(validation.path),
            test=Path(test.path),
            rejected=Path(rejected.path),
            report=Path(report.path),
            frozen=Path(frozen.path) if frozen else None,
        )
    report.metadata.update(result.metrics())
