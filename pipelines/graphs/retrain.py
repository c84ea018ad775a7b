"""Retraining by the clock: the champion learns from what is new, and makes way only for a better one.

    check_settings ─ prepare_models ─ collect_problems ─ take_champion
      ─ if enough is new: sample_completions ─ label_completions ─ train_verify_rm ─ evaluate_verify_rm
          ─ evaluate_policy (starting point) ─ (train_cooper ─ evaluate_policy) x iterations
          ─ report ─ promote                                       then always: summarise_run

Texts that red teams found before are in the registry, and are learned as wrong. With `red_team = true` in the
profile, the candidate's VerifyRM is attacked before it can be promoted.
Everything is judged on the registry's frozen sets. Where nothing is new, take_champion says so and the run
ends well.
"""

from typing import List, cast

from kfp import dsl
from kfp.dsl import PipelineTask
from kfp.dsl.base_component import BaseComponent

from cooper_rl.run import chain
from cooper_rl.schema.stages import Output
from pipelines.profile import Profile
from pipelines.resources import UNCACHED, Given, Tasks
from pipelines.steps import (
    add_steps,
    check_iterations,
    checkpoints_of,
    component_of,
    outputs_of,
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
            run_key: Name of the checkpoints below storage.uri, to go on where an earlier run ended; empty:
                this run's id.
        """
        # Whose inputs are the same in every run, and what they name is not.
        uncached = UNCACHED | {"collect_problems"}
        tasks = Tasks(profile, {"preset": preset, "overrides": overrides}, uncached=uncached)
        with summarised(tasks, run_key):
            begun = add_steps(tasks, chain.prepare(), run_key=run_key)
            champion = tasks.add(
                component_of("take_champion"),
                "Take the champion",
                prepared=begun["prepare_models"].outputs["models"],
                collected=begun["collect_problems"].outputs["problems"],
                collected_held_out=begun["collect_problems"].outputs["held_out"],
            )
            with dsl.If(champion.outputs["Output"] == True, name="Enough is new"):  # noqa: E712 - KFP overloads ==
                _train_and_promote(tasks, profile, iterations, champion, run_key=run_key)
            with dsl.Else(name="Nothing is new"):
                # Kubeflow works out how a graph ended when one of its tasks ends: without this one, the
                # record of such a run would stay RUNNING (read in the source at 2.17.0).
                named = checkpoints_of(run_key)
                tasks.add(component_of("check_settings"), "Keep the champion", **named)

    return cast(BaseComponent, dsl.pipeline(name="retrain")(retrain))


def _train_and_promote(
    tasks: Tasks, profile: Profile, iterations: int, champion: PipelineTask, *, run_key: Given
) -> None:
    sources = chain.Sources(
        models=Output("take_champion", "models"),
        problems=Output("take_champion", "problems"),
        held_out=Output("take_champion", "held_out"),
        attacks=Output("take_champion", "attacks"),
    )
    steps = [
        *chain.make_verify_rm(
            models=sources.models,
            problems=sources.problems,
            frozen=Output("take_champion", "examples"),
            attacks=sources.attacks,
            label_shards=profile.label_shards,
        ),
        *chain.co_train(sources, iterations),
        *([chain.attack_end(sources, iterations)] if profile.red_team else []),
        chain.report(iterations, is_attacked=profile.red_team),
        chain.promote(sources, iterations, is_attacked=profile.red_team),
    ]
    add_steps(tasks, steps, given=outputs_of({"take_champion": champion}), run_key=run_key)
