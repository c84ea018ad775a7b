"""Co-training from a VerifyRM that exists, as `verify_rm` left it.

check_settings ─ prepare_models ─ collect_problems ─ evaluate_verify_rm ─ evaluate_policy (starting point)
  ─ (train_cooper ─ evaluate_policy) x iterations ─ report          then always: summarise_run
"""

from typing import List, cast

from kfp import dsl
from kfp.dsl import Dataset, Model
from kfp.dsl.base_component import BaseComponent

from cooper_rl.run import chain
from cooper_rl.schema.stages import Output
from pipelines.profile import Profile
from pipelines.resources import Tasks
from pipelines.steps import add_steps, check_iterations, summarised


def build_cooper(profile: Profile, iterations: int) -> BaseComponent:
    """The pipeline with so many co-training iterations.

    Raises:
        ConfigError: `iterations` is out of range.
    """
    check_iterations(iterations)

    def cooper(
        verify_rm: str,
        examples: str,
        preset: str = profile.preset,
        overrides: List[str] = [],
        run_key: str = "",
    ):
        """Co-train the policy with a VerifyRM that was trained before, and report.

        Args:
            verify_rm: URI of a VerifyRM: the output verify_rm of the task "Train VerifyRM" of an earlier run.
            examples: URI of labelled examples that it has not seen: the output test of "Label completions".
            preset: A preset's name, or the path of a .toml file inside the image.
            overrides: Changes to the preset, each as dotted.key=value, for example
                ["cooper.steps=40", "seed=1"].
            run_key: Name of the checkpoints below storage.uri, to go on where an earlier run ended; empty:
                this run's id.
        """
        tasks = Tasks(profile, {"preset": preset, "overrides": overrides})
        with summarised(tasks, run_key):
            model = dsl.importer(artifact_uri=verify_rm, artifact_class=Model, reimport=False)
            model.set_display_name("VerifyRM")
            test = dsl.importer(artifact_uri=examples, artifact_class=Dataset, reimport=False)
            test.set_display_name("Held-out examples")
            sources = chain.Sources(
                verify_rm=Output("given", "verify_rm"),
                test=Output("given", "test"),
                replay=None,
                examples=None,
                attacks=chain.FIRST_ATTACKS if profile.red_team else None,
            )
            evaluation = chain.evaluate_verify_rm(verify_rm=sources.verify_rm, test=sources.test)
            steps = [
                *chain.prepare(),
                evaluation._replace(after=("prepare_models",)),
                *chain.follow_policy(
                    sources,
                    iterations,
                    is_attacked=profile.red_team,
                    frozen=sources.verify_rm if profile.frozen_arm else None,
                    label_report=None,
                ),
            ]
            given = {Output("given", "verify_rm"): model.output, Output("given", "test"): test.output}
            add_steps(tasks, steps, given=given, run_key=run_key)

    return cast(BaseComponent, dsl.pipeline(name="cooper")(cooper))
