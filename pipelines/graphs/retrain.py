"""Retraining by the clock: the champion learns from what is new, and makes way only for a better one.

    prepare_models ─ collect_problems ─ take_champion
      ─ if enough is new: sample_completions ─ label_completions ─ train_verify_rm ─ evaluate_verify_rm
          ─ evaluate_policy (starting point) ─ (train_cooper ─ evaluate_policy) x iterations
          ─ report ─ promote                                       then always: summarise_run

Everything is judged on the registry's frozen sets. Where nothing is new, take_champion says so and the run
ends well.
"""

from typing import Any, List, cast

from kfp import dsl
from kfp.dsl.base_component import BaseComponent

from components.promote import promote
from components.take_champion import take_champion
from pipelines.profile import Profile
from pipelines.resources import UNCACHED, Tasks
from pipelines.steps import (
    Start,
    Task,
    add_report,
    check_iterations,
    co_train,
    lessons_of,
    make_verify_rm,
    prepare,
    summarised,
)


def build_retrain(profile: Profile, iterations: int) -> BaseComponent:
    """The pipeline with so many co-training iterations.

    Raises:
        ConfigError: `iterations` is out of range.
    """
    check_iterations(iterations)

    def retrain(preset: str = profile.preset, overrides: List[str] = [], run_key: str = ""):
        """Train the champion of the registry on new problems; promote the result only if it is better.

        Args:
            preset: A preset's name, or the path of a .toml file inside the image. Its problems are collected
                anew in every run.
            overrides: Changes to the preset, each as dotted.key=value, for example
                ["registry.uri=s3://cooper-rl/registry", "registry.max_canary_rate=0.1"].
            run_key: Name of the checkpoints below storage.uri: a run with the same name continues.
                Needed with storage.uri, and only then.
        """
        # Whose inputs are the same in every run, and what they name is not.
        uncached = UNCACHED | {"collect_problems"}
        tasks = Tasks(profile, {"preset": preset, "overrides": overrides}, uncached=uncached)
        with summarised(tasks, run_key):
            begun = prepare(tasks)
            champion = tasks.add(
                take_champion,
                "Take the champion",
                prepared=begun.models.outputs["models"],
                collected=begun.problems.outputs["problems"],
                collected_held_out=begun.problems.outputs["held_out"],
            )
            with dsl.If(champion.outputs["Output"] == True, name="Enough is new"):  # noqa: E712 - KFP overloads ==
                _train_and_promote(tasks, iterations, champion, run_key=run_key)

    return cast(BaseComponent, dsl.pipeline(name="retrain")(retrain))


def _train_and_promote(tasks: Tasks, iterations: int, champion: Task, *, run_key: Any) -> None:
    problems = champion.outputs["problems"]
    judged = make_verify_rm(
        tasks, models=champion.outputs["models"], problems=problems, frozen=champion.outputs["examples"]
    )
    trained = co_train(
        tasks,
        iterations,
        run_key=run_key,
        start=Start(models=champion, problems=champion),
        verify_rm=judged.verify_rm.outputs["verify_rm"],
        examples=judged.labels.outputs["test"],
        verify_rm_evaluation=judged.evaluation,
        lessons=lessons_of(judged),
    )
    add_report(tasks, trained, judged.evaluation, label_report=judged.labels.outputs["report"])
    tasks.add(
        promote,
        "Promote or keep the champion",
        run_key=run_key,
        checkpoint=trained.checkpoint.outputs["checkpoint"],
        evaluations=trained.evaluation.outputs["evaluations"],
        completions=trained.evaluation.outputs["completions"],
        problems=problems,
        held_out=champion.outputs["held_out"],
        examples=judged.labels.outputs["test"],
    )
