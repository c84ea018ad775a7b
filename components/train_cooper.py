"""KFP component of `stages/train_cooper.py`: one iteration of co-training."""

from typing import List

from kfp import dsl
from kfp.dsl import Dataset, Input, Metrics, Model, Output

from components.images import GPU_IMAGE


@dsl.component(base_image=GPU_IMAGE, install_kfp_package=False)
def train_cooper(
    preset: str,
    models: Input[Model],
    verify_rm: Input[Model],
    problems: Input[Dataset],
    checkpoint: Output[Model],
    report: Output[Metrics],
    overrides: List[str] = [],
    site: List[str] = [],
    run_key: str = "",
    run_id: str = "",
    start: Input[Model] = None,  # pyright: ignore[reportArgumentType]
    replay: Input[Dataset] = None,  # pyright: ignore[reportArgumentType]
    examples: Input[Dataset] = None,  # pyright: ignore[reportArgumentType]
    held_out: Input[Dataset] = None,  # pyright: ignore[reportArgumentType]
    test: Input[Dataset] = None,  # pyright: ignore[reportArgumentType]
    attacks: Input[Dataset] = None,  # pyright: ignore[reportArgumentType]
    arm: List[str] = [],
) -> float:
    """Co-train policy and VerifyRM for many steps; returns the rule accuracy of the last rollouts.

    Args:
        preset: A preset's name or the path of a .toml file.
        models: What prepare_models wrote: the starting policy, which is the reference policy too.
        verify_rm: What train_verify_rm wrote.
        problems: Problems to train on.
        checkpoint: Both models, their optimisers, and the metrics and pairs of every step so far.
        report: Numbers of this stage, and its report as a file.
        overrides: dotted.key=value changes to the preset.
        site: Changes that hold for every run on this cluster, applied before `overrides`.
        run_key: Sets storage.run_key, the name to continue the run under, unless overrides do; may be empty.
        run_id: Kubeflow's id of the run, the name where run_key is empty.
        start: Checkpoint of the previous iteration; without it training starts at step 1.
        replay: Labelled examples for cooper.reward.num_replay_examples.
        examples: Held-out labelled examples for cooper.gate and cooper.evaluate_every.
        held_out: Held-out problems for cooper.evaluate_every.
        test: Labelled examples of later evaluations; their questions are left out of `problems`.
        attacks: Texts of red_team for cooper.pairs.negatives.red_team; cooper.gate watches them.
        arm: Changes of this task alone, applied last: what makes it another arm than Cooper.
    """
    from pathlib import Path

    from cooper_rl.cluster.task import task
    from cooper_rl.stages import train_cooper as stage

    with task(preset, [*site, *overrides, *arm], run_key=run_key, run_id=run_id) as config:
        result = stage.run(
            config,
            models=Path(models.path),
            verify_rm=Path(verify_rm.path),
            problems=Path(problems.path),
            start=Path(start.path) if start else None,
            replay=Path(replay.path) if replay else None,
            examples=Path(examples.path) if examples else None,
            held_out=Path(held_out.path) if held_out else None,
            test=Path(test.path) if test else None,
            attacks=Path(attacks.path) if attacks else None,
            checkpoint=Path(checkpoint.path),
            report=Path(report.path),
        )
    report.metadata.update(result.metrics())
    return result.rule_accuracy
