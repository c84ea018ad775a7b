"""TrainJobs of a run that nobody follows any more: their task's node was lost, or its last request failed."""

import logging
from typing import Any

from cooper_rl.cluster.sdk import MissingError, ask, connect
from cooper_rl.cluster.trainjob import RUN, run_label
from cooper_rl.config.infrastructure import LaunchConfig
from cooper_rl.errors import LaunchError

logger = logging.getLogger(__name__)


def end_jobs(config: LaunchConfig, run_uri: str) -> list[str]:
    """Delete the jobs of a run that go on; each saves what it has, as on SIGTERM.

    Args:
        config: Where the run's jobs are.
        run_uri: Place of the run in the store.

    Returns:
        Their places, `namespace/name`. A job that is complete or failed stays, for whoever looks at it.

    Raises:
        ConfigError: the SDK is not installed.
        LaunchError: the cluster refuses or does not answer.
    """
    client = connect(config)
    from kubeflow.trainer.constants.constants import GROUP, TRAINJOB_PLURAL, VERSION

    backend = client.backend
    found = ask(
        client,
        f"the TrainJobs of {backend.namespace} cannot be listed",
        lambda: backend.custom_api.list_namespaced_custom_object(
            GROUP, VERSION, backend.namespace, TRAINJOB_PLURAL, label_selector=f"{RUN}={run_label(run_uri)}"
        ),
    )
    names = [job["metadata"]["name"] for job in found["items"] if not _has_ended(job)]
    return [place for name in names if (place := _delete(client, name)) is not None]


def _has_ended(job: dict[str, Any]) -> bool:
    conditions = job.get("status", {}).get("conditions") or []
    return any(each["type"] in ("Complete", "Failed") and each["status"] == "True" for each in conditions)


def _delete(client: Any, name: str) -> str | None:
    """Delete a job; returns its place, or None where it was gone."""
    namespace = client.backend.namespace
    place = f"{namespace}/{name}"
    try:
        ask(client, f"TrainJob {place} cannot be deleted", lambda: client.delete_job(name))
    except MissingError:
        return None
    except LaunchError as error:
        raise LaunchError(
            f"{error}; remove it by hand: kubectl --namespace {namespace} delete trainjob {name}"
        ) from error
    logger.warning("TrainJob %s went on without a task that follows it, and is deleted", place)
    return place
