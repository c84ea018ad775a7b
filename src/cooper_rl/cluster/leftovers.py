"""TrainJobs of a run that nobody follows any more: their task's node was lost, or its last request failed."""

import logging

from cooper_rl.cluster.sdk import MissingError, connect, explain
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
    host = backend.core_api.api_client.configuration.host
    try:
        found = backend.custom_api.list_namespaced_custom_object(
            GROUP, VERSION, backend.namespace, TRAINJOB_PLURAL, label_selector=f"{RUN}={run_label(run_uri)}"
        )
    except Exception as error:
        raise explain(f"the TrainJobs of {backend.namespace} cannot be listed", error, host) from error
    ended: list[str] = []
    for job in found["items"]:
        conditions = job.get("status", {}).get("conditions") or []
        if any(each["type"] in ("Complete", "Failed") and each["status"] == "True" for each in conditions):
            continue
        name = job["metadata"]["name"]
        place = f"{backend.namespace}/{name}"
        try:
            client.delete_job(name)
        except Exception as error:
            explained = explain(f"TrainJob {place} cannot be deleted", error, host)
            if isinstance(explained, MissingError):
                continue
            raise LaunchError(
                f"{explained}; remove it by hand: "
                f"kubectl --namespace {backend.namespace} delete trainjob {name}"
            ) from error
        logger.warning("TrainJob %s went on without a task that follows it, and is deleted", place)
        ended.append(place)
    return ended
