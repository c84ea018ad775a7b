"""Several arms and seeds from one start, each in tasks of its own, and one page that compares them.

    check_settings ─ prepare_models ─ collect_problems ─ sample_completions ─ label_completions
      ─ train_verify_rm ─ evaluate_verify_rm ─ evaluate_policy (starting point)
      ─ for every arm and seed: train_cooper ─ evaluate_policy
      ─ compare_arms                                                  then always: summarise_run

Arms and seeds stand in the profile (`arms`, `seeds`). The loop's items are fixed when the pipeline is
compiled: what an arm sets is no parameter that a person could type.
"""

from typing import Any, List, cast

from kfp import dsl
from kfp.dsl.base_component import BaseComponent

from cooper_rl.comparison.arms import arm_overrides
from cooper_rl.config.cooper import RunConfig
from cooper_rl.run import chain
from pipelines.profile import Profile
from pipelines.resources import Tasks
from pipelines.steps import add_steps, summarised


def build_experiment(profile: Profile, _iterations: int) -> BaseComponent:
    """The pipeline; each run has one iteration."""
    runs = (profile.runs_setting,)
    settings: list[Any] = [  # KFP takes lists, and its annotation names none
        [*arm_overrides(arm), f"cooper.seed={seed}", f"storage.arm={RunConfig(arm=arm, seed=seed).name}"]
        for arm, seed in profile.runs
    ]

    def experiment(preset: str = profile.preset, overrides: List[str] = [], run_key: str = ""):
        """Train every arm with every seed from one start, for cooper.steps steps, and compare them.

        Args:
            preset: A preset's name, or the path of a .toml file inside the image.
            overrides: Changes to the preset, each as dotted.key=value, for example
                ["cooper.steps=400", "cooper.evaluate_every=20"].
            run_key: Name of the checkpoints below storage.uri, to go on where an earlier run ended; empty:
                this run's id.
        """
        tasks = Tasks(profile, {"preset": preset, "overrides": overrides})
        with summarised(tasks, run_key, changes=runs):
            start = [
                step._replace(changes=runs) if step.stage == "check_settings" else step
                for step in chain.before_arms(label_shards=profile.label_shards)
            ]
            begun = add_steps(tasks, start, run_key=run_key)
            with dsl.ParallelFor(settings, name="Arms", parallelism=profile.runs_at_once or None) as arm:
                trained = add_steps(tasks, chain.of_arm(), begun=begun, run_key=run_key, arm=arm)
            compared = chain.compare_arms()._replace(changes=runs)
            add_steps(tasks, [compared], begun={**begun, **trained}, looped=trained)

    return cast(BaseComponent, dsl.pipeline(name="experiment")(experiment))
