"""Kubernetes objects that the acceptance tests make: a pod, and a queue of Kueue with a quota of its own."""

from collections.abc import Mapping, Sequence
from typing import Any

from pipelines.profile import GpuPool

Json = dict[str, Any]
CONTAINER = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
POD = {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}}
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
KUEUE = "kueue.x-k8s.io/v1beta2"
PLENTY = {"cpu": "10k", "memory": "1Pi", "ephemeral-storage": "1Pi"}
"""Quotas that nothing reaches; a resource that a queue does not cover keeps a pod out of it."""


def make_pod(
    name: str,
    image: str,
    command: Sequence[str],
    *,
    labels: Mapping[str, str] | None = None,
    environment: Sequence[Json] = (),
    pull_secrets: Sequence[str] = (),
) -> Json:
    """A pod that fits Pod Security `restricted` and is never tried again."""
    container = {
        "name": "main",
        "image": image,
        "command": list(command),
        "env": list(environment),
        "securityContext": CONTAINER,
    }
    spec = {
        "containers": [container],
        "restartPolicy": "Never",
        "securityContext": POD,
        "imagePullSecrets": [{"name": secret} for secret in pull_secrets],
    }
    metadata = {"name": name, "labels": dict(labels or {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def on_gpus(pod: Json, pool: GpuPool) -> Json:
    """The pod with the GPUs, nodes and queue of a task of this pool."""
    (container,) = pod["spec"]["containers"]
    asked = {"cpu": "100m", "memory": "64Mi", pool.type: str(pool.count)}
    container["resources"] = {"requests": asked, "limits": asked}
    pod["spec"]["nodeSelector"] = dict(pool.node_selector)
    pod["spec"]["tolerations"] = [each.model_dump(exclude_none=True) for each in pool.tolerations]
    pod["metadata"]["labels"][QUEUE_LABEL] = pool.queue
    return pod


def make_queue(name: str, namespace: str, pool: GpuPool) -> list[Json]:
    """Flavor, ClusterQueue and LocalQueue of one name, which let one task of the pool work at a time."""
    quotas = PLENTY | {pool.type: str(pool.count)}
    flavor = {
        "name": name,
        "resources": [{"name": resource, "nominalQuota": quota} for resource, quota in quotas.items()],
    }
    namespaces = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    groups = [{"coveredResources": list(quotas), "flavors": [flavor]}]
    cluster_queue = {"namespaceSelector": namespaces, "resourceGroups": groups}
    return [
        _kueue("ResourceFlavor", {"name": name}, {"nodeLabels": dict(pool.node_selector)}),
        _kueue("ClusterQueue", {"name": name}, cluster_queue),
        _kueue("LocalQueue", {"name": name, "namespace": namespace}, {"clusterQueue": name}),
    ]


def _kueue(kind: str, metadata: Json, spec: Json) -> Json:
    return {"apiVersion": KUEUE, "kind": kind, "metadata": metadata, "spec": spec}
