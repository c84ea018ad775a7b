"""The whole method as one pipeline, from problems to a co-trained policy and its report.

    check_settings ─ prepare_models ─ collect_problems ─ sample_completions ─ label_completions
      ─ train_verify_rm ─ evaluate_verify_rm ─ evaluate_policy (starting point)
      ─ (train_cooper ─ evaluate_policy) x iterations ─ report          then always: summarise_run

With `red_team = true` in the profile, VerifyRM is attacked before co-training, which learns from the texts
that were found, and after it. With `frozen_arm = true`, the policy is also trained on a VerifyRM that has no
decoys and never learns, and the report shows both.
Iterations are unrolled when the pipeline is compiled: KFP has no recursion, and both models change
in every step, so one task is one iteration of many steps.
"""

from typing import List, cast

from kfp import dsl
from kfp.dsl.base_component import BaseComponent

from cooper_rl.run import chain
from pipelines.profile import Profile
from pipelines.resources import Tasks
from pipelines.steps import add_steps, check_iterations, summarised


def build_end_to_end(profile: Profile, iterations: int) -> BaseComponent:
    """The pipeline with so many co-training iterations.

    Raises:
        ConfigError: `iterations` is out of range.
    """
    check_iterations(iterations)

    def end_to_end(preset: str = profile.preset, overrides: List[str] = [], run_key: str = ""):
        """Label completions, train VerifyRM, co-train it with the policy, and report.

        Args:
            preset: A preset's name, or the path of a .toml file inside the image.
            overrides: Changes to the preset, each as dotted.key=value, for example
                ["cooper.steps=40", "seed=1"].
            run_key: Name of the checkpoints below storage.uri, to go on where an earlier run ended; empty:
                this run's id.
        """
        tasks = Tasks(profile, {"preset": preset, "overrides": overrides})
        with summarised(tasks, run_key):
            steps = chain.whole(
                iterations,
                label_shards=profile.label_shards,
                is_attacked=profile.red_team,
                has_frozen=profile.frozen_arm,
            )
            add_steps(tasks, steps, run_key=run_key)

    return cast(BaseComponent, dsl.pipeline(name="end-to-end")(end_to_end))
