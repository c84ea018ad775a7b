"""The chain of stages (`cooper_rl/run/chain.py`) as KFP tasks, and the summary that ends every run."""

from collections.abc import Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any, cast

from kfp import dsl
from kfp.dsl import PipelineTask
from kfp.dsl.pipeline_channel import PipelineChannel

from cooper_rl.errors import ConfigError
from cooper_rl.run.chain import Step
from cooper_rl.schema.stages import Output, OutputName, StageName
from pipelines.resources import Component, Given, Tasks

MAX_ITERATIONS = 5  # 13 + 2 x 5 tasks stay well under the size limit of an Argo workflow
TAKES_RUN_KEY: frozenset[StageName] = frozenset({"check_settings", "train_cooper", "promote"})


def component_of(stage: StageName) -> Component:
    """The component of a stage."""
    return getattr(import_module(f"components.{stage}"), stage)


def checkpoints_of(run_key: Given) -> dict[str, Given]:
    """Inputs of every task that must agree on where the run's checkpoints are.

    Kubeflow fills in the id of the run, which is new in each run of a schedule and stays when a run or a task
    is tried again. It fills in a placeholder only where it is the whole constant of a task's input: never
    inside a longer text, nor in a parameter of the pipeline (read in the source at 2.17.0).
    """
    return {"run_key": run_key, "run_id": dsl.PIPELINE_JOB_ID_PLACEHOLDER}


@contextmanager
def summarised(tasks: Tasks, run_key: Given, *, changes: Sequence[str] = ()) -> Generator[None]:
    """The block is the run; its summary is written however it ends, with `changes` of its settings."""
    inputs = checkpoints_of(run_key)
    if changes:
        inputs["arm"] = list(changes)
    ending = tasks.add(component_of("summarise_run"), "Summarise the run", **inputs)
    with dsl.ExitHandler(ending, name="Run"):
        yield


def add_steps(
    tasks: Tasks,
    steps: Sequence[Step],
    *,
    given: Mapping[Output, Given] | None = None,
    begun: Mapping[str, PipelineTask] | None = None,
    looped: Collection[str] = (),
    run_key: Given = "",
    arm: Given | None = None,
) -> dict[str, PipelineTask]:
    """A task for every step, by name.

    Args:
        tasks: Makes them.
        steps: In an order in which they can run.
        given: Outputs of tasks that are no step.
        begun: Steps before, by name.
        looped: Those of them that stand in a loop: of each, all outputs are read.
        run_key: Name of the run's checkpoints.
        arm: Settings of the co-training among the steps, which win over the run's.

    Raises:
        ConfigError: an input is neither of a step before nor given.
    """
    made = dict(begun or {})
    known = dict(given or {})
    sharded = set(looped)
    for step in steps:
        inputs: dict[str, Given] = {
            name: _collect(_resolve(output, made, known, step), output, sharded)
            for name, output in step.inputs.items()
        }
        if step.stage in TAKES_RUN_KEY:
            inputs |= checkpoints_of(run_key)
        if step.changes:
            inputs["arm"] = list(step.changes)
        elif arm is not None and step.stage == "train_cooper":
            inputs["arm"] = arm
        if step.num_shards > 1:
            task = _add_shards(tasks, step, inputs)
            sharded.add(step.name)
        else:
            task = tasks.add(component_of(step.stage), step.title, **inputs)
        for name in step.after:
            task.after(made[name])
        made[step.name] = task
    return {step.name: made[step.name] for step in steps}


def _add_shards(tasks: Tasks, step: Step, inputs: Mapping[str, Given]) -> PipelineTask:
    """A task for every shard; each has the settings of the site, and after them its number.

    The items are fixed when the pipeline is compiled: kfp.local cannot loop over a named output.
    """
    items: list[Any] = [  # KFP takes lists, and its annotation names none
        [*tasks.site, f"labeling.shard={{number={number}, count={step.num_shards}}}"]
        for number in range(step.num_shards)
    ]
    with dsl.ParallelFor(items, name=step.title) as site:
        return tasks.add(component_of(step.stage), step.title, site=site, **inputs)


def _collect(value: Given, output: Output, sharded: Collection[str]) -> Given:
    if output.step not in sharded:
        return value
    return dsl.Collected(cast(PipelineChannel, value))  # an output of a step, made above


def outputs_of(tasks: Mapping[str, PipelineTask]) -> dict[Output, Given]:
    """Every output of tasks that stand outside a chain."""
    return {
        Output(name, cast(OutputName, output)): value
        for name, task in tasks.items()
        for output, value in task.outputs.items()
    }


def _resolve(
    output: Output, made: Mapping[str, PipelineTask], given: Mapping[Output, Given], step: Step
) -> Given:
    if output in given:
        return given[output]
    if output.step not in made:
        raise ConfigError(f"step {step.name!r} reads {str(output)!r}, which no step before it makes")
    return made[output.step].outputs[output.name]


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
