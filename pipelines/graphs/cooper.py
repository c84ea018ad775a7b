"""Co-training from a VerifyRM that exists, as `verify_rm` left it.

prepare_models ─ collect_problems ─ evaluate_verify_rm ─ evaluate_policy (starting point)
  ─ (train_cooper ─ evaluate_policy) x iterations ─ report          then always: summarise_run
"""

from typing import List, cast

from kfp import dsl
from kfp.dsl import Dataset, Model
from kfp.dsl.base_component import BaseComponent

from components.evaluate_verify_rm import evaluate_verify_rm
from pipelines.profile import Profile
from pipelines.resources import Tasks
from pipelines.steps import add_report, check_iterations, co_train, prepare, summarised


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
            run_key: Name of the checkpoints below storage.uri: a run with the same name continues.
                Needed with storage.uri, and only then.
        """
        tasks = Tasks(profile, {"preset": preset, "overrides": overrides})
        with summarised(tasks, run_key):
            start = prepare(tasks)
            model = dsl.importer(artifact_uri=verify_rm, artifact_class=Model, reimport=False)
            model.set_display_name("VerifyRM")
            held_out = dsl.importer(artifact_uri=examples, artifact_class=Dataset, reimport=False)
            held_out.set_display_name("Held-out examples")
            evaluation = tasks.add(
                evaluate_verify_rm, "Evaluate VerifyRM", verify_rm=model.output, examples=held_out.output
            )
            trained = co_train(
                tasks,
                iterations,
                run_key=run_key,
                start=start,
                verify_rm=model.output,
                examples=held_out.output,
                verify_rm_evaluation=evaluation,
            )
            add_report(tasks, trained, evaluation)

    return cast(BaseComponent, dsl.pipeline(name="cooper")(cooper))
