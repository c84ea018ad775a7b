"""KFP component of `stages/evaluate_policy.py`: a policy on problems that training has not seen."""

from typing import List

from kfp import dsl
from kfp.dsl import Dataset, Input, Metrics, Model, Output

from components.images import GPU_IMAGE


@dsl.component(base_image=GPU_IMAGE, install_kfp_package=False)
def evaluate_policy(
    preset: str,
    models: Input[Model],
    verify_rm: Input[Model],
    problems: Input[Dataset],
    examples: Input[Dataset],
    evaluations: Output[Dataset],
    completions: Output[Dataset],
    report: Output[Metrics],
    overrides: List[str] = [],
    site: List[str] = [],
    checkpoint: Input[Model] = None,  # pyright: ignore[reportArgumentType]
    previous: Input[Dataset] = None,  # pyright: ignore[reportArgumentType]
    attacks: Input[Dataset] = None,  # pyright: ignore[reportArgumentType]
) -> float:
    """Evaluate a policy on held-out problems; returns its rule accuracy.

    Args:
        preset: A preset's name or the path of a .toml file.
        models: What prepare_models wrote.
        verify_rm: What train_verify_rm wrote.
        problems: Held-out problems.
        examples: Held-out labelled examples, on which VerifyRM is measured too.
        evaluations: The evaluations of `previous` and this one, in order.
        completions: What the policy wrote, with every verdict.
        report: Numbers of this stage, and its report as a file.
        overrides: dotted.key=value changes to the preset.
        site: Changes that hold for every run on this cluster, applied before `overrides`.
        checkpoint: What train_cooper wrote; without it the starting point is evaluated.
        previous: Evaluations of earlier points of this run.
        attacks: Texts of red teams, each scored as canaries are.
    """
    from pathlib import Path

    from cooper_rl.cluster.task import task
    from cooper_rl.stages import evaluate_policy as stage

    with task(preset, [*site, *overrides]) as config:
        result = stage.run(
            config,
            models=Path(models.path),
            verify_rm=Path(verify_rm.path),
            problems=Path(problems.path),
            examples=Path(examples.path),
            checkpoint=Path(checkpoint.path) if checkpoint else None,
            previous=Path(previous.path) if previous else None,
            attacks=Path(attacks.path) if attacks else None,
            evaluations=Path(evaluations.path),
            completions=Path(completions.path),
            report=Path(report.path),
        )
    report.metadata.update(result.metrics())
    return result.rule_accuracy.value
