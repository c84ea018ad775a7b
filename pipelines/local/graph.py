"""Runs the graph of a compiled pipeline for kfp.local, with tasks at once that do not need each other.

kfp 2.17 runs one task after the other. `run_graph` takes the place of its `run_enhanced_dag`, with the same
arguments, results and rules: what needs a failed task is skipped, everything else runs, exit tasks run last.
A nested graph (exit handler, branch) counts as one task of the graph round it, and has as many at once.
So does a loop, whose turns are such graphs.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from functools import cache, partial
from typing import Any, cast

from kfp.local import io, status
from kfp.local.orchestrator import enhanced_dag_orchestrator as kfp_graph
from kfp.local.orchestrator.orchestrator_utils import OrchestratorUtils
from kfp.local.orchestrator.task_spec_utils import create_parameter_loop_iteration_task_spec
from kfp.pipeline_spec import pipeline_spec_pb2

from cooper_rl.schema.stages import StageName
from pipelines.local.lines import lines_named, turn_named
from pipelines.resources import DEFAULT_HOURS, HOURS

Task = Any
"""kfp's PipelineTaskSpec, which has no types."""
Result = tuple[dict[str, Any], status.Status]

_TaskSpec: Any = pipeline_spec_pb2.PipelineTaskSpec  # pyright: ignore[reportAttributeAccessIssue] no stubs
ALWAYS = _TaskSpec.TriggerPolicy.TriggerStrategy.ALL_UPSTREAM_TASKS_COMPLETED
"""Strategy of a task that runs whether or not those before it failed."""


def run_at_once(max_tasks: int) -> None:
    """Have kfp.local run up to `max_tasks` tasks of a graph at once, in this process from now on."""
    kfp_graph.run_enhanced_dag = partial(run_graph, max_tasks=max_tasks)


def run_graph(
    *,
    max_tasks: int,
    dag_component_spec: Any,
    dag_arguments: dict[str, Any],
    parent_io_store: io.IOStore | None = None,
    **shared: Any,
) -> Result:
    """Run a graph to its end; returns its outputs, which are empty where a task failed.

    Args:
        max_tasks: At once.
        dag_component_spec: The component that the graph is.
        dag_arguments: Its inputs.
        parent_io_store: What the graph round it has made.
        shared: What kfp hands from graph to graph unchanged.
    """
    graph = dag_component_spec.dag
    store = io.IOStore(parent=parent_io_store)
    inputs = OrchestratorUtils.join_user_inputs_and_defaults(
        dag_arguments=dag_arguments, dag_inputs_spec=dag_component_spec.input_definitions
    )
    for name, value in inputs.items():
        store.put_parent_input(name, value)
    ending = {name: task for name, task in graph.tasks.items() if _is_exit_task(task)}
    others = {name: task for name, task in graph.tasks.items() if name not in ending}
    runs = [_run_tasks(tasks, store, max_tasks, shared) for tasks in (others, ending)]
    if not all(runs):
        return {}, status.Status.FAILURE
    outputs = OrchestratorUtils.get_dag_outputs(dag_outputs_spec=graph.outputs, io_store=store)
    return outputs, status.Status.SUCCESS


def _run_tasks(tasks: Mapping[str, Task], store: io.IOStore, max_tasks: int, shared: dict[str, Any]) -> bool:
    """Run tasks in the order of their needs; returns whether none failed or was skipped for a failure."""
    waiting, failed = dict(tasks), set[str]()
    running: dict[Future[Result], str] = {}
    with ThreadPoolExecutor(max_tasks) as pool:
        while waiting or running:
            for name in ready(waiting, running.values()):
                task = waiting[name]
                if task.trigger_policy.strategy != ALWAYS and failed.intersection(task.dependent_tasks):
                    failed.add(name)
                    store.put_task_status(name, "FAILED")
                elif _is_asked_for(task, store):
                    if len(running) == max_tasks:
                        continue
                    is_loop = task.WhichOneof("iterator") is not None
                    run = partial(_run_loop, max_tasks=max_tasks) if is_loop else _run_task
                    # With this thread's context, which knows the turn of a loop that the task belongs to.
                    started = pool.submit(copy_context().run, run, name, task, store, shared=shared)
                    running[started] = name
                del waiting[name]
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                name = running.pop(future)
                if not _keep(name, future.result(), store):
                    failed.add(name)
                    shared["fail_stack"].append(name)
    return not failed


def ready(waiting: Mapping[str, Task], running: Iterable[str]) -> list[str]:
    """Waiting tasks whose needs have ended, those first whose chain of later tasks takes longest."""
    unfinished = {*waiting, *running}
    found = [name for name, task in waiting.items() if unfinished.isdisjoint(task.dependent_tasks)]
    hours = _chain_hours(waiting)
    return sorted(found, key=lambda name: (-hours(name), name))


def _chain_hours(tasks: Mapping[str, Task]) -> Callable[[str], float]:
    """For a task the longest sum of time limits over it and those that wait for it, one after the other.

    Limits stand for durations: they say which stages take long.
    """

    @cache  # chains that meet have their end in common
    def hours(name: str) -> float:
        stage = re.sub(r"^comp-|-\d+$", "", tasks[name].component_ref.name).replace("-", "_")
        next_ones = [other for other, task in tasks.items() if name in task.dependent_tasks]
        later = max(map(hours, next_ones), default=0.0)
        return HOURS.get(cast(StageName, stage), DEFAULT_HOURS) + later

    return hours


def _is_asked_for(task: Task, store: io.IOStore) -> bool:
    condition = task.trigger_policy.condition
    return not condition or kfp_graph.ConditionEvaluator.evaluate_condition(condition, store)


def _run_task(name: str, task: Task, store: io.IOStore, shared: dict[str, Any]) -> Result:
    with lines_named(name):
        return kfp_graph.execute_task(task_name=name, task_spec=task, io_store=store, **shared)


def _run_loop(name: str, task: Task, store: io.IOStore, max_tasks: int, shared: dict[str, Any]) -> Result:
    """All turns of a loop, whose items our pipelines fix when they are compiled; each output is a list."""
    items = json.loads(task.parameter_iterator.items.raw)
    turns = [create_parameter_loop_iteration_task_spec(task, item, name) for item in items]
    limit = task.iterator_policy.parallelism_limit or max_tasks
    with ThreadPoolExecutor(min(limit, max_tasks)) as pool:
        names = [f"{name}-iteration-{number}" for number in range(len(turns))]
        labels = [_label(item, number) for number, item in enumerate(items, start=1)]
        results = list(pool.map(partial(_run_turn, store=store, shared=shared), labels, names, turns))
    if any(ended != status.Status.SUCCESS for _, ended in results):
        return {}, status.Status.FAILURE
    made = [outputs for outputs, _ in results]
    return {key: [outputs[key] for outputs in made] for key in made[0]}, status.Status.SUCCESS


def _run_turn(label: str, name: str, task: Task, store: io.IOStore, shared: dict[str, Any]) -> Result:
    with turn_named(label):
        return _run_task(name, task, store, shared)


def _label(item: Any, number: int) -> str:
    """The name of a turn: what the last of its settings is set to, where that is a name; else its number."""
    value = str(item[-1] if isinstance(item, list) else item).rpartition("=")[2].replace("_", "-")
    return value if re.fullmatch(r"[a-z0-9-]+", value) else str(number)


def _keep(name: str, result: Result, store: io.IOStore) -> bool:
    """Put a task's outputs where later tasks find them; returns whether it succeeded."""
    outputs, ended = result
    is_good = ended == status.Status.SUCCESS
    store.put_task_status(name, "SUCCEEDED" if is_good else "FAILED")
    for key, output in outputs.items():
        store.put_task_output(name, key, output)
    return is_good


def _is_exit_task(task: Task) -> bool:
    """True if it is told how the others ended; only a true exit task is (read in kfp 2.17)."""
    inputs = task.inputs.parameters.values()
    return task.trigger_policy.strategy == ALWAYS and any(i.HasField("task_final_status") for i in inputs)
