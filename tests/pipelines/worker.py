"""A compiled pipeline run by the worker process, as `pipelines/local/run.py` starts it."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]


class Ended(NamedTuple):
    """The worker's exit status, and what it and the tasks printed."""

    status: int
    printed: str


def run_worker(
    pipeline: Path,
    arguments: Mapping[str, Any],
    *,
    root: Path,
    run: str,
    forks: bool = False,
    tasks_at_once: int | None = None,
    import_first: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Ended:
    """Run a pipeline in processes.

    Args:
        pipeline: Compiled; the cache is beside it.
        arguments: Of the pipeline.
        root: Where the folder `run` comes.
        run: Name of the run.
        forks: Stages are forks of one process.
        tasks_at_once: None: as many as the machine takes.
        import_first: A folder that Python looks into before any other.
        environment: Beside this process's own.
    """
    request = {
        "pipeline": str(pipeline),
        "arguments": dict(arguments),
        "root": str(root),
        "run": run,
        "cache": str(pipeline.with_name("cache")),
        "image": None,
        "containers": None,
        "forks": forks,
        "tasks_at_once": tasks_at_once,
    }
    first = [] if import_first is None else [str(import_first)]
    path = os.pathsep.join([*first, str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", "pipelines.local.worker"],
        input=json.dumps(request) + "\n",
        cwd=ROOT,
        env={**os.environ, **(environment or {}), "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
        check=False,
    )
    return Ended(done.returncode, done.stdout)
