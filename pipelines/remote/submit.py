"""Uploads a pipeline as a version named by its content, starts a run of it, and follows it.

Uploading is idempotent: the same content is the same version. Schedules are in
`pipelines/remote/schedule.py`.
"""

import json
import re
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple, TextIO

import kfp_server_api

from cooper_rl.config.kubernetes import OBJECT_NAME
from cooper_rl.errors import ServerError
from cooper_rl.machine.scratch import scratch_folder
from cooper_rl.progress import clock
from cooper_rl.schema.texts import in_one_line
from pipelines.compile import check_parameters, compile_pipeline, content_hash, read_compiled
from pipelines.profile import Profile
from pipelines.remote.server import Server, is_status

FINAL_STATES = ("SUCCEEDED", "FAILED", "CANCELED", "SKIPPED")
"""kfp's own waiting does not end with a run that was cancelled."""

MAX_FAILED_LOOKS = 10
"""Failures in a row before following a run is given up; the run itself goes on."""


INNER = re.compile(r"^$|-driver$|^executor$|\(\d+\)$")
"""Nodes of Argo's that are no tasks of ours: drivers, the launcher inside a task, and single tries."""

ALONE = "kubeflow"
"""The namespace of runs on an installation for a single user."""

WHERE_TO_LOOK = (
    "The server does not hand on why. The messages of the pods: kubectl --namespace {namespace} get events "
    "--field-selector type=Warning,involvedObject.name={workflow}\n"
)


class Version(NamedTuple):
    """An uploaded pipeline."""

    pipeline_id: str
    version_id: str
    name: str
    is_new: bool
    parameters: dict[str, Any]
    """The parameters as a run is given them."""


def upload(
    server: Server, name: str, *, profile: Profile, iterations: int, parameters: Mapping[str, Any]
) -> Version:
    """Make sure that the server has this very pipeline.

    Raises:
        ConfigError: a parameter that the pipeline does not have, or one that is missing.
        ServerError: the server cannot be used.
    """
    with scratch_folder() as folder:
        path = compile_pipeline(name, folder, profile=profile, iterations=iterations)
        specification = read_compiled(path)
        arguments = check_parameters(specification, parameters, name=name)
        shown = specification["pipelineInfo"]["name"]
        pipeline_id = _find_or_create(server, shown, specification["pipelineInfo"].get("description", ""))
        version = f"{shown}-{content_hash(path)}"
        found = _find_version(server, pipeline_id, version)
        if found is not None:
            return Version(pipeline_id, found, version, is_new=False, parameters=arguments)
        try:
            with server.explained(f"upload version {version}"):
                uploaded = server.client.upload_pipeline_version(str(path), version, pipeline_id=pipeline_id)
        except ServerError as error:
            found = _find_version(server, pipeline_id, version) if is_status(error.__cause__, 409) else None
            if found is None:
                raise
            return Version(pipeline_id, found, version, is_new=False, parameters=arguments)
    version_id = server.id_of(uploaded, "pipeline_version_id")
    return Version(pipeline_id, version_id, version, is_new=True, parameters=arguments)


def find_experiment(server: Server, name: str) -> str:
    """The id of an experiment, which is made where there is none."""

    def find_or_create() -> str:
        with server.explained(f"open experiment {name!r}"):
            found = server.client.create_experiment(name, namespace=server.place.namespace)
        return server.id_of(found, "experiment_id")

    try:
        return find_or_create()
    except ServerError as error:
        if not is_status(error.__cause__, 409):
            raise
        return find_or_create()  # somebody else made it between the look and the creation


def start(server: Server, version: Version, *, experiment: str) -> str:
    """Start a run; returns its id.

    Raises:
        ServerError: refused; or not answered, so that it may have started all the same.
    """
    experiment_id = find_experiment(server, experiment)
    title = f"{version.name.rpartition('-')[0]} {datetime.now(UTC):%Y-%m-%d %H:%M:%S}"
    try:
        with server.explained("start a run"):
            run = server.client.run_pipeline(
                experiment_id,
                title,
                params=version.parameters,
                pipeline_id=version.pipeline_id,
                version_id=version.version_id,
            )
        return server.id_of(run, "run_id")
    except ServerError as error:
        status = getattr(error.__cause__, "status", None) or 500
        if status < 500:
            raise
        raise ServerError(
            f"{error}. The run may have started all the same: look for {title!r} on {server.link('runs')} "
            "before you start another"
        ) from error


def follow(server: Server, run_id: str, screen: TextIO, *, pause_seconds: float) -> bool:
    """Show tasks as they start and end, until the run does; returns whether it succeeded.

    Raises:
        ServerError: the server did not answer many times in a row; the run goes on without us.
    """
    started = time.monotonic()
    seen: dict[str, str] = {}
    num_failed = 0
    while True:
        try:
            with server.explained(f"look at run {run_id}"):
                run = server.client.get_run(run_id)
            num_failed = 0
        except ServerError as error:
            num_failed += 1
            if num_failed >= MAX_FAILED_LOOKS or is_status(error.__cause__, 404):
                raise
            if is_status(error.__cause__, 401):
                server.renew_token()
            screen.write(f"{error}; looking again ({num_failed} of {MAX_FAILED_LOOKS})\n")
            screen.flush()
            time.sleep(pause_seconds)
            continue
        for task, state in _task_states(run):
            if seen.get(task) != state:
                seen[task] = state
                screen.write(f"{clock(time.monotonic() - started):>7}  {task}  {state.lower()}\n")
                screen.flush()
        if run.state in FINAL_STATES:
            message = in_one_line(getattr(run.error, "message", None) or "")
            screen.write(f"run {run.state.lower()}{f': {message}' if message else ''}\n")
            if run.state == "FAILED" and (workflow := _workflow_of(run)):
                screen.write(
                    WHERE_TO_LOOK.format(namespace=server.place.namespace or ALONE, workflow=workflow)
                )
            return run.state == "SUCCEEDED"
        time.sleep(pause_seconds)


def _task_states(run: Any) -> Sequence[tuple[str, str]]:
    return [
        (in_one_line(name), in_one_line(task.state))
        for task in _details(run)
        if task.state and not INNER.search(name := str(task.display_name or ""))
    ]


def _workflow_of(run: Any) -> str | None:
    """The name of the run's Argo workflow, with which the id of each of its nodes begins."""
    nodes = [child.pod_name for task in _details(run) for child in task.child_tasks or []]
    names = [str(node).rpartition("-")[0] for node in nodes if node]
    # It goes into a command for a shell.
    return next((name for name in names if re.fullmatch(OBJECT_NAME, name)), None)


def _details(run: Any) -> Sequence[Any]:
    return [task for task in getattr(run.run_details, "task_details", None) or [] if task is not None]


def _find_or_create(server: Server, name: str, description: str) -> str:
    found = _find_pipeline(server, name)
    if found is not None:
        return found
    try:
        with server.explained(f"create pipeline {name!r}"):
            created = server.pipelines.pipeline_service_create_pipeline(
                kfp_server_api.V2beta1Pipeline(
                    name=name, display_name=name, description=description, namespace=server.place.namespace
                )
            )
        return server.id_of(created, "pipeline_id")
    except ServerError as error:  # somebody else was quicker
        found = _find_pipeline(server, name) if is_status(error.__cause__, 409) else None
        if found is None:
            raise
        return found


def _find_pipeline(server: Server, name: str) -> str | None:
    with server.explained("list pipelines"):
        answer = server.client.list_pipelines(filter=_named(name), namespace=server.place.namespace)
    return next((str(found.pipeline_id) for found in answer.pipelines or []), None)


def _find_version(server: Server, pipeline_id: str, name: str) -> str | None:
    with server.explained("list versions"):
        answer = server.client.list_pipeline_versions(pipeline_id, filter=_named(name))
    return next((str(found.pipeline_version_id) for found in answer.pipeline_versions or []), None)


def _named(name: str) -> str:
    return json.dumps({"predicates": [{"operation": "EQUALS", "key": "display_name", "stringValue": name}]})
