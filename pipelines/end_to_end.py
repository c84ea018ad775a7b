"""The whole method as one pipeline, from problems to a co-trained policy and its report.

    prepare_models ─ collect_problems ─ sample_completions ─ label_completions
      ─ train_verify_rm ─ evaluate_verify_rm ─ evaluate_policy (starting point)
      ─ (train_cooper ─ evaluate_policy) x iterations ─ report

Iterations are unrolled when the pipeline is compiled: KFP has no recursion, and both models change
in every step, so one task is one iteration of many steps. Deliberately left out: what a stage does
(`cooper_rl/stages/`), and its artifacts and types (`components/`).
"""

from collections.abc import Callable
from typing import Any, List, NamedTuple, cast

from kfp import dsl
from kfp.dsl import HTML, Dataset, Markdown, Metrics, Model, PipelineTask
from kfp.dsl.base_component import BaseComponent

from components.collect_problems import collect_problems
from components.evaluate_policy import evaluate_policy
from components.evaluate_verify_rm import evaluate_verify_rm
from components.label_completions import label_completions
from components.prepare_models import prepare_models
from components.report import report
from components.sample_completions import sample_completions
from components.train_cooper import train_cooper
from components.train_verify_rm import train_verify_rm
from cooper_rl.errors import ConfigError

MAX_ITERATIONS = 5  # 9 + 2 x 5 tasks stay well under the size limit of an Argo workflow


class Outputs(NamedTuple):
    """What a run leaves behind, under names that a caller can rely on."""

    page: HTML
    summary: Markdown
    evaluations: Dataset
    verify_rm_report: Metrics
    checkpoint: Model


def build_end_to_end(iterations: int) -> BaseComponent:
    """The pipeline with so many co-training iterations.

    Raises:
        ConfigError: `iterations` is not between 1 and 5.
    """
    if not 1 <= iterations <= MAX_ITERATIONS:
        raise ConfigError(
            f"iterations={iterations}: choose 1 to {MAX_ITERATIONS}, and set cooper.steps for more "
            "steps in each iteration"
        )

    def end_to_end(preset: str = "laptop", overrides: List[str] = [], run_key: str = "") -> Outputs:
        """Label completions, train VerifyRM, co-train it with the policy, and report.

        Args:
            preset: A preset's name, or the path of a .toml file inside the image.
            overrides: Changes to the preset, each as dotted.key=value, for example
                ["cooper.steps=40", "seed=1"].
            run_key: Name of the checkpoints below storage.uri: a run with the same name continues.
                Needed with storage.uri, and only then.
        """
        return _connect({"preset": preset, "overrides": overrides}, iterations, run_key=run_key)

    return cast(BaseComponent, dsl.pipeline(name="end-to-end")(end_to_end))


def _connect(choice: dict[str, Any], iterations: int, *, run_key: Any) -> Outputs:
    """All tasks, and what flows between them."""
    models = _task(prepare_models, "Prepare models", **choice)
    problems = _task(collect_problems, "Collect problems", **choice)
    completions = _task(
        sample_completions,
        "Sample completions",
        **choice,
        models=models.outputs["models"],
        problems=problems.outputs["problems"],
    )
    labels = _task(
        label_completions,
        "Label completions",
        **choice,
        problems=problems.outputs["problems"],
        completions=completions.outputs["completions"],
    )
    verify_rm = _task(
        train_verify_rm,
        "Train VerifyRM",
        **choice,
        train=labels.outputs["train"],
        validation=labels.outputs["validation"],
        models=models.outputs["models"],
    )
    verify_rm_evaluation = _task(
        evaluate_verify_rm,
        "Evaluate VerifyRM",
        **choice,
        verify_rm=verify_rm.outputs["verify_rm"],
        examples=labels.outputs["test"],
    )
    trained = _co_train(
        iterations,
        choice,
        run_key=run_key,
        models=models,
        problems=problems,
        labels=labels,
        verify_rm=verify_rm,
        verify_rm_evaluation=verify_rm_evaluation,
    )
    page = _task(
        report,
        "Report",
        **choice,
        evaluations=trained.evaluation.outputs["evaluations"],
        completions=trained.evaluation.outputs["completions"],
        checkpoint=trained.checkpoint.outputs["checkpoint"],
        label_report=labels.outputs["report"],
        verify_rm_report=verify_rm_evaluation.outputs["report"],
    )
    return Outputs(
        page=page.outputs["page"],
        summary=page.outputs["summary"],
        evaluations=trained.evaluation.outputs["evaluations"],
        verify_rm_report=verify_rm_evaluation.outputs["report"],
        checkpoint=trained.checkpoint.outputs["checkpoint"],
    )


class _Trained(NamedTuple):
    """The last tasks of each kind."""

    checkpoint: Any
    evaluation: Any


def _co_train(
    iterations: int,
    choice: dict[str, Any],
    *,
    run_key: Any,
    models: PipelineTask,
    problems: PipelineTask,
    labels: PipelineTask,
    verify_rm: PipelineTask,
    verify_rm_evaluation: PipelineTask,
) -> _Trained:
    """Evaluate the starting point, then train and evaluate; all evaluations see the same held-out data.

    Nothing here starts before VerifyRM was evaluated: the policy should not be trained on a bad one.
    """
    base: dict[str, Any] = {
        **choice,
        "models": models.outputs["models"],
        "verify_rm": verify_rm.outputs["verify_rm"],
    }
    held_out: dict[str, Any] = {"problems": problems.outputs["held_out"], "examples": labels.outputs["test"]}
    evaluation = _task(evaluate_policy, "Evaluate the starting point", **base, **held_out)
    evaluation.after(verify_rm_evaluation)
    checkpoint = None
    for iteration in range(1, iterations + 1):
        start: dict[str, Any] = {} if checkpoint is None else {"start": checkpoint.outputs["checkpoint"]}
        checkpoint = _task(
            train_cooper,
            f"Train Cooper, iteration {iteration}",
            is_cached=False,
            **base,
            run_key=run_key,
            problems=problems.outputs["problems"],
            replay=labels.outputs["train"],
            examples=labels.outputs["validation"],
            held_out=problems.outputs["held_out"],
            **start,
        )
        checkpoint.after(verify_rm_evaluation)
        evaluation = _task(
            evaluate_policy,
            f"Evaluate iteration {iteration}",
            **base,
            **held_out,
            checkpoint=checkpoint.outputs["checkpoint"],
            previous=evaluation.outputs["evaluations"],
        )
    assert checkpoint is not None
    return _Trained(checkpoint, evaluation)


def _task(component: Callable[..., Any], display_name: str, *, is_cached: bool = True, **inputs: Any) -> Any:
    """A configured PipelineTask; typed Any because kfp types its outputs unlike what takes them."""
    task: PipelineTask = component(**inputs)
    task.set_display_name(display_name)
    task.set_caching_options(is_cached)
    return task
