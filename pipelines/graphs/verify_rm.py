"""VerifyRM alone: problems, completions, labels, training, evaluation.

check_settings ─ prepare_models ─ collect_problems ─ sample_completions ─ label_completions
  ─ train_verify_rm ─ evaluate_verify_rm                            then always: summarise_run
"""

from typing import List, cast

from kfp import dsl
from kfp.dsl.base_component import BaseComponent

from cooper_rl.run import chain
from pipelines.profile import Profile
from pipelines.resources import Tasks
from pipelines.steps import add_steps, summarised


def build_verify_rm(profile: Profile, _iterations: int) -> BaseComponent:
    """The pipeline; it has no iterations."""

    def verify_rm(preset: str = profile.preset, overrides: List[str] = []):
        """Label completions of several models, train VerifyRM on them, and evaluate it on unseen problems.

        Args:
            preset: A preset's name, or the path of a .toml file inside the image.
            overrides: Changes to the preset, each as dotted.key=value, for example
                ["verify_rm.num_epochs=2", "seed=1"].
        """
        tasks = Tasks(profile, {"preset": preset, "overrides": overrides})
        with summarised(tasks, ""):
            attacked = [chain.attack_start(chain.Sources())] if profile.red_team else []
            add_steps(
                tasks, [*chain.prepare(), *chain.make_verify_rm(label_shards=profile.label_shards), *attacked]
            )

    return cast(BaseComponent, dsl.pipeline(name="verify-rm")(verify_rm))
