"""The process in which kfp.local runs a compiled pipeline.

`pipelines/local/run.py` starts it, sends it one line of JSON and reads its output. A process of its own,
because kfp.local keeps its settings in a process-wide singleton, rewires the root logger and prints: here it
may. It ends, and its stages with it, when its standard input is closed: the process that started it has ended
then, in whatever way.
"""

import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import yaml
from kfp import components, local
from kfp.local import executor_input_utils, logging_utils

from cooper_rl.machine.cores import usable_cores
from pipelines.local.fork import can_fork, fork_stages, has_gpu
from pipelines.local.graph import run_at_once
from pipelines.local.lines import NamedLines

RUN_VARIABLE = "COOPER_RL_RUN"


def run(request: dict[str, Any]) -> None:
    """Run `pipeline` with `arguments` in the folder `run` below `root`.

    Stages run in containers of `image` where `containers` has options for them, else as processes: forks
    of one where `forks` says so and the machine can. `tasks_at_once` is None where the machine decides.
    """
    _take_over_output()
    machine_has_gpu = has_gpu()
    run_at_once(request["tasks_at_once"] or (1 if machine_has_gpu else usable_cores()))
    if request["forks"] and not machine_has_gpu and can_fork():
        fork_stages()
    # kfp gives every run a new folder, named after the time. A run that goes on needs the one that it had.
    executor_input_utils.get_local_pipeline_resource_name = lambda _: request["run"]
    containers = request["containers"]
    local.init(
        runner=local.DockerRunner(**containers) if containers else local.SubprocessRunner(use_venv=False),
        pipeline_root=request["root"],
        enable_caching=True,
        cache_root=request["cache"],
    )
    text = adapt(
        Path(request["pipeline"]).read_text(encoding="utf-8"), image=request["image"], run=request["run"]
    )
    components.load_component_from_text(text)(**request["arguments"])


def adapt(text: str, *, image: str | None, run: str) -> str:
    """The compiled pipeline with every stage in `image`, where one is given, and every finished task kept.

    A cached task is kept for all runs of the folder. An uncached one is kept for this run alone: kfp's cache
    key holds a task's environment, which names the run. The exit task always runs: it says how the run ended.
    """
    pipeline, *platforms = yaml.safe_load_all(text)
    executors = pipeline["deploymentSpec"]["executors"]
    for executor in executors.values():
        if image is not None and "container" in executor:  # an importer has none
            executor["container"]["image"] = image
    for task in _tasks(pipeline):
        component = pipeline["components"][task["componentRef"]["name"]]
        container = executors.get(component.get("executorLabel"), {}).get("container")
        is_exit_task = task.get("triggerPolicy", {}).get("strategy") == "ALL_UPSTREAM_TASKS_COMPLETED"
        if container is None or is_exit_task or task["cachingOptions"].get("enableCache"):
            continue
        task["cachingOptions"] = {"enableCache": True}
        container.setdefault("env", []).append({"name": RUN_VARIABLE, "value": run})
    return yaml.safe_dump_all([pipeline, *platforms], sort_keys=False)


def _take_over_output() -> None:
    """Name every line after its task.

    kfp rewires the root logger and `print` round each task, which threads would do to each other.
    """
    log = NamedLines(sys.stdout, is_log=True)
    sys.stdout = sys.stderr = NamedLines(sys.stdout)
    logging_utils.local_logger_context = logging_utils.indented_print = nullcontext
    logging.basicConfig(
        stream=log,
        level=logging.INFO,
        format="%(asctime)s - %(levelname)s - %(message)s",
        datefmt="%H:%M:%S",
    )


def _tasks(pipeline: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for component in (pipeline["root"], *pipeline["components"].values()):
        yield from component.get("dag", {}).get("tasks", {}).values()


def _end_with_the_starter() -> None:
    """Read until the other end of the pipe is closed, then end this process group, stages included."""
    while os.read(sys.stdin.fileno(), 1):
        pass
    os.killpg(os.getpgrp(), signal.SIGKILL)


def main() -> None:
    """Run what the first line of standard input asks for."""
    request = json.loads(sys.stdin.buffer.readline())
    if os.getpgrp() == os.getpid():  # else others than our stages are in the group
        threading.Thread(target=_end_with_the_starter, daemon=True).start()
    run(request)


if __name__ == "__main__":
    main()
