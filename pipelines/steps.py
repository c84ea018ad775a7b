"""What several pipelines do alike: the chain that makes a VerifyRM, co-training, and the summary at the end.

Deliberately left out: what a stage does (`cooper_rl/stages/`), its artifacts and types (`components/`), and
what a task runs on (`pipelines/resources.py`).
"""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from kfp import dsl

from components.collect_problems import collect_problems
from components.evaluate_policy import evaluate_policy
from components.evaluate_verify_rm import evaluate_verify_rm
from components.label_completions import label_completions
from components.prepare_models import prepare_models
from components.report import report
from components.sample_completions import sample_completions
from components.summarise_run import summarise_run
from components.train_cooper import train_cooper
from components.train_verify_rm import train_verify_rm
from cooper_rl.errors import ConfigError
from pipelines.resources import Tasks

MAX_ITERATIONS = 5  # 11 + 2 x 5 tasks stay well under the size limit of an Argo workflow

Task = Any
"""A PipelineTask; kfp types its outputs unlike what takes them."""


@contextmanager
def summarised(tasks: Tasks, run_key: Any) -> Generator[None]:
    """The block is the run; its summary is written however it ends."""
    ending = tasks.add(summarise_run, "Summarise the run", run_key=run_key)
    with dsl.ExitHandler(ending, name="Run"):
        yield


class Start(NamedTuple):
    """Where every run starts."""

    models: Task
    problems: Task


def prepare(tasks: Tasks) -> Start:
    """Models and problems."""
    return Start(tasks.add(prepare_models, "Prepare models"), tasks.add(collect_problems, "Collect problems"))


class Judged(NamedTuple):
    """A VerifyRM, what it was made from, and what it is worth."""

    labels: Task
    verify_rm: Task
    evaluation: Task


def make_verify_rm(tasks: Tasks, *, models: Any, problems: Any, **frozen: Any) -> Judged:
    """Sample, label, train and evaluate; `frozen` is the input of labelling of that name."""
    completions = tasks.add(sample_completions, "Sample completions", models=models, problems=problems)
    labels = tasks.add(
        label_completions,
        "Label completions",
        problems=problems,
        completions=completions.outputs["completions"],
        **frozen,
    )
    verify_rm = tasks.add(
        train_verify_rm,
        "Train VerifyRM",
        train=labels.outputs["train"],
        validation=labels.outputs["validation"],
        models=models,
    )
    evaluation = tasks.add(
        evaluate_verify_rm,
        "Evaluate VerifyRM",
        verify_rm=verify_rm.outputs["verify_rm"],
        examples=labels.outputs["test"],
    )
    return Judged(labels, verify_rm, evaluation)


def lessons_of(judged: Judged) -> dict[str, Any]:
    """What co-training may learn from and check itself on beside the rollouts."""
    return {"replay": judged.labels.outputs["train"], "examples": judged.labels.outputs["validation"]}


class Trained(NamedTuple):
    """The last tasks of each kind."""

    checkpoint: Task
    evaluation: Task


def co_train(
    tasks: Tasks,
    iterations: int,
    *,
    run_key: Any,
    start: Start,
    verify_rm: Any,
    examples: Any,
    verify_rm_evaluation: Task,
    lessons: Mapping[str, Any] | None = None,
) -> Trained:
    """Evaluate the starting point, then train and evaluate; all evaluations see the same held-out data.

    Nothing here starts before VerifyRM was evaluated: the policy should not be trained on a bad one.
    `lessons` are co-training's inputs `replay` and `examples`, where the run has labelled examples for it.
    """
    base = {"models": start.models.outputs["models"], "verify_rm": verify_rm}
    held_out = {"problems": start.problems.outputs["held_out"], "examples": examples}
    evaluation = tasks.add(evaluate_policy, "Evaluate the starting point", **base, **held_out)
    evaluation.after(verify_rm_evaluation)
    checkpoint = None
    for iteration in range(1, iterations + 1):
        before = {} if checkpoint is None else {"start": checkpoint.outputs["checkpoint"]}
        checkpoint = tasks.add(
            train_cooper,
            f"Train Cooper, iteration {iteration}",
            **base,
            run_key=run_key,
            problems=start.problems.outputs["problems"],
            held_out=start.problems.outputs["held_out"],
            test=examples,
            **(lessons or {}),
            **before,
        )
        checkpoint.after(verify_rm_evaluation)
        evaluation = tasks.add(
            evaluate_policy,
            f"Evaluate iteration {iteration}",
            **base,
            **held_out,
            checkpoint=checkpoint.outputs["checkpoint"],
            previous=evaluation.outputs["evaluations"],
        )
    return Trained(checkpoint, evaluation)


def add_report(tasks: Tasks, trained: Trained, verify_rm_evaluation: Task, **label_report: Any) -> None:
    """The page and the summary of what the run has shown."""
    tasks.add(
        report,
        "Report",
        evaluations=trained.evaluation.outputs["evaluations"],
        completions=trained.evaluation.outputs["completions"],
        checkpoint=trained.checkpoint.outputs["checkpoint"],
        verify_rm_report=verify_rm_evaluation.outputs["report"],
        **label_report,
    )


def check_iterations(iterations: int) -> None:
    """Refuse what cannot be unrolled.

    Raises:
        ConfigError: `iterations` is not between 1 and 5.
    """
    if not 1 <= iterations <= MAX_ITERATIONS:
        raise ConfigError(
            f"iterations={iterations}: choose 1 to {MAX_ITERATIONS}, and set cooper.steps for more "
            "steps in each iteration"
        )
