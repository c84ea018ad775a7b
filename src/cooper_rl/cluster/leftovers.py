"""TrainJobs of a run that nobody follows any more: their task's node was lost, or its last request failed."""

import logging
import time
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from cooper_rl.cluster.sdk import MissingError, TransientError, UnknownKindError, ask, connect
from cooper_rl.cluster.trainjob import RUN, run_label
from cooper_rl.config.infrastructure import LaunchConfig
from cooper_rl.errors import LaunchError

logger = logging.getLogger(__name__)

T = TypeVar("T")

SILENCE_SECONDS = 10.0
"""Of one request: the exit task is short, and a person waits for its summary."""
RETRY_SECONDS = 30.0
"""An API server that is away is asked for so long, for all jobs together."""
SECONDS_BETWEEN_TRIES = 5.0


class Leftovers(NamedTuple):
    """The end of the jobs of a run that went on; their places are `namespace/name`."""

    deleted: list[str]
    doubts: list[str]
    """Why others may go on, a sentence each."""


def end_jobs(config: LaunchConfig, run_uri: str) -> Leftovers:
    """Delete the jobs of a run that go on; each saves what it has, as on SIGTERM.

    A job that is complete or failed stays, for whoever looks at it. Without the Trainer there are no jobs.

    Args:
        config: Where the run's jobs are.
        run_uri: Place of the run in the store, without an arm's name.

    Raises:
        ConfigError: the SDK is not installed.
        LaunchError: the jobs cannot be listed: the cluster refuses or does not answer.
    """
    client = connect(config, silence_seconds=SILENCE_SECONDS)
    deadline = time.monotonic() + RETRY_SECONDS
    deleted: list[str] = []
    doubts: list[str] = []
    for name in _names(client, run_uri, deadline):
        place = f"{client.backend.namespace}/{name}"
        try:
            _delete(client, name, place, deadline)
        except MissingError:
            continue  # it ended, or somebody was faster
        except LaunchError as error:
            doubts.append(str(error))
            continue
        logger.warning("TrainJob %s went on without a task that follows it, and is deleted", place)
        deleted.append(place)
    return Leftovers(deleted, doubts)


def _names(client: Any, run_uri: str, deadline: float) -> list[str]:
    """The run's jobs that go on."""
    from kubeflow.trainer.constants.constants import GROUP, TRAINJOB_PLURAL, VERSION

    backend = client.backend

    def look() -> list[str]:
        found = backend.custom_api.list_namespaced_custom_object(
            GROUP, VERSION, backend.namespace, TRAINJOB_PLURAL, label_selector=f"{RUN}={run_label(run_uri)}"
        )
        return [job["metadata"]["name"] for job in found["items"] if not _has_ended(job)]

    try:
        return _ask(client, f"the TrainJobs of {backend.namespace} cannot be listed", look, deadline)
    except UnknownKindError as error:
        logger.warning("%s; so this run left none", error)
        return []


def _has_ended(job: dict[str, Any]) -> bool:
    """True if it is complete or failed, or was deleted and waits for a finalizer."""
    conditions = job.get("status", {}).get("conditions") or []
    return "deletionTimestamp" in job["metadata"] or any(
        each["type"] in ("Complete", "Failed") and each["status"] == "True" for each in conditions
    )


def _delete(client: Any, name: str, place: str, deadline: float) -> None:
    try:
        _ask(client, f"TrainJob {place} cannot be deleted", lambda: client.delete_job(name), deadline)
    except MissingError:
        raise
    except LaunchError as error:
        namespace = client.backend.namespace
        raise LaunchError(
            f"{error}; remove it by hand: kubectl --namespace {namespace} delete trainjob {name}"
        ) from error


def _ask(client: Any, what: str, call: Callable[[], T], deadline: float) -> T:
    """The result of a call of the SDK; an API server that is away is asked again until the deadline."""
    while True:
        try:
            return ask(client, what, call)
        except TransientError as error:
            if time.monotonic() + SECONDS_BETWEEN_TRIES > deadline:
                raise
            logger.warning("%s; asking again", error)
            time.sleep(SECONDS_BETWEEN_TRIES)
