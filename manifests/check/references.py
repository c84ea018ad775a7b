"""Rules for what refers to what: everything that is named exists, in the render or as expected."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict

from manifests.check.resources import Pod, Problem, Resource, matches


class Expected(BaseModel):
    """`expects.yaml` beside an overlay: what must be there before, and who talks to whom."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    extends: str | None = None
    """Folder of another overlay, beside this one, whose expectations hold too."""
    secrets: dict[str, list[str]] = {}
    """namespace/name -> keys, made by the installer."""
    service_accounts: list[str] = []
    """namespace/name, made by Kubeflow."""
    pods: dict[str, "ForeignPod"] = {}
    """Pods that somebody else starts, under names that `connections` uses."""
    addresses: dict[str, str] = {}
    """Addresses outside the pod network: name -> NetworkPolicy that writes the address out."""
    allowed: list[str] = []
    """`from -> to:port`, where either is a workload's or a foreign pod's name, or an address."""
    refused: list[str] = []
    """The same, for what no policy may let through."""


class ForeignPod(BaseModel):
    """A pod of Kubeflow's, or of a run."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    namespace: str
    labels: dict[str, str]
    namespace_labels: dict[str, str] = {}
    """Of its namespace, beside the name that every namespace has."""


Expected.model_rebuild()


def read_expected(folder: Path) -> Expected:
    """The file beside the overlay, or beside the first overlay that it builds on.

    Raises:
        FileNotFoundError: there is none.
    """
    path = folder / "expects.yaml"
    if path.is_file():
        own = Expected.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
        return own if own.extends is None else _join(read_expected(folder / own.extends), own)
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text(encoding="utf-8"))
    for resource in kustomization["resources"]:
        if (folder / resource / "kustomization.yaml").is_file():
            return read_expected(folder / resource)
    raise FileNotFoundError(f"{path}: missing; copy one from manifests/overlays")


def _join(base: Expected, own: Expected) -> Expected:
    """Both at once; where both name a secret, pod or address, `own` counts."""
    return Expected(
        secrets=base.secrets | own.secrets,
        service_accounts=[*base.service_accounts, *own.service_accounts],
        pods=base.pods | own.pods,
        addresses=base.addresses | own.addresses,
        allowed=[*base.allowed, *own.allowed],
        refused=[*base.refused, *own.refused],
    )


def check_references(resources: list[Resource], pods: list[Pod], expected: Expected) -> Iterator[Problem]:
    """Secrets and their keys, ConfigMaps, claims, accounts, roles, namespaces, queues, selectors, ports."""
    known = {(resource.kind, resource.namespace, resource.name): resource for resource in resources}
    for pod in pods:
        yield from _check_pod(pod, known, expected)
    for resource in resources:
        yield from _check_selectors(resource, pods)
        yield from _check_binding(resource, known, expected)
        yield from _check_queue(resource, known)
        if resource.namespace and not _has_namespace(resource, known, expected):
            yield Problem(resource.place, f"namespace {resource.namespace} is neither here nor expected")


Known = Mapping[tuple[str, str, str], Resource]


def _check_pod(pod: Pod, known: Known, expected: Expected) -> Iterator[Problem]:
    wanted = list(_secrets_of(pod.spec))
    for name, key in wanted:
        keys = expected.secrets.get(f"{pod.namespace}/{name}")
        if keys is None:
            yield Problem(pod.place, f"Secret {pod.namespace}/{name} is not among the expected ones")
        elif key is not None and key not in keys:
            yield Problem(pod.place, f"Secret {pod.namespace}/{name} has no key {key!r}, only {keys}")
    for kind, name in _others_of(pod.spec):
        if (kind, pod.namespace, name) not in known:
            yield Problem(pod.place, f"{kind} {pod.namespace}/{name} does not exist")
    account = pod.spec.get("serviceAccountName")
    if account and ("ServiceAccount", pod.namespace, account) not in known:
        yield Problem(pod.place, f"ServiceAccount {pod.namespace}/{account} does not exist")
    volumes = {volume["name"] for volume in pod.spec.get("volumes", [])}
    claims = pod.owner.spec.get("volumeClaimTemplates", []) if pod.owner else []
    volumes |= {claim["metadata"]["name"] for claim in claims}
    mounted: set[str] = set()
    for container in pod.containers:
        for mount in container.get("volumeMounts", []):
            mounted.add(mount["name"])
            if mount["name"] not in volumes:
                yield Problem(pod.place, f"{container['name']} mounts {mount['name']}, which is no volume")
    for name in sorted(volumes - mounted):
        yield Problem(pod.place, f"volume {name} is mounted nowhere")


def _secrets_of(spec: Mapping[str, Any]) -> Iterator[tuple[str, str | None]]:
    for volume in spec.get("volumes", []):
        if "secret" in volume:
            name = volume["secret"]["secretName"]
            yield name, None
            for item in volume["secret"].get("items", []):
                yield name, item["key"]
    for reference in spec.get("imagePullSecrets", []):
        yield reference["name"], None
    for container in [*spec.get("initContainers", []), *spec.get("containers", [])]:
        for variable in container.get("env", []):
            reference = variable.get("valueFrom", {}).get("secretKeyRef")
            if reference:
                yield reference["name"], reference["key"]
        for source in container.get("envFrom", []):
            if "secretRef" in source:
                yield source["secretRef"]["name"], None


def _others_of(spec: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for volume in spec.get("volumes", []):
        if "configMap" in volume:
            yield "ConfigMap", volume["configMap"]["name"]
        if "persistentVolumeClaim" in volume:
            yield "PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]
    for container in [*spec.get("initContainers", []), *spec.get("containers", [])]:
        for variable in container.get("env", []):
            reference = variable.get("valueFrom", {}).get("configMapKeyRef")
            if reference:
                yield "ConfigMap", reference["name"]


def _check_selectors(resource: Resource, pods: list[Pod]) -> Iterator[Problem]:
    if resource.kind in {"Deployment", "StatefulSet"}:
        labels = resource.spec["template"]["metadata"]["labels"]
        if not resource.spec["selector"].get("matchLabels") or not matches(resource.spec["selector"], labels):
            yield Problem(resource.place, "its selector does not match its own pods")
        service = resource.spec.get("serviceName")
        if resource.kind == "StatefulSet" and not service:
            yield Problem(resource.place, "has no serviceName")
    if resource.kind not in {"Service", "PodDisruptionBudget"}:
        return
    selector = resource.spec["selector"]
    if resource.kind == "Service":
        selector = {"matchLabels": selector}
    chosen = [pod for pod in pods if pod.namespace == resource.namespace and matches(selector, pod.labels)]
    if not selector.get("matchLabels") or len(chosen) != 1:
        yield Problem(resource.place, f"selects {len(chosen)} workloads, not exactly one")
    elif resource.kind == "Service":
        yield from _check_ports(resource, chosen[0])
    else:
        yield from _check_budget(resource, chosen[0])


def _check_ports(service: Resource, pod: Pod) -> Iterator[Problem]:
    served = [port for container in pod.spec["containers"] for port in container.get("ports", [])]
    for port in service.spec["ports"]:
        target = port.get("targetPort", port["port"])
        if not any(target in (known.get("name"), known["containerPort"]) for known in served):
            yield Problem(service.place, f"targetPort {target} is no port of {pod.place}")


def _check_budget(budget: Resource, pod: Pod) -> Iterator[Problem]:
    """It must protect something, and still let a node be drained."""
    replicas = pod.owner.spec.get("replicas", 1) if pod.owner else 1
    at_least = budget.spec.get("minAvailable")
    allowed = budget.spec["maxUnavailable"] if at_least is None else replicas - at_least
    if not 0 < allowed < replicas:
        yield Problem(
            budget.place, f"lets {allowed} of {replicas} pods go; it must be between 1 and all but one"
        )
    if budget.spec.get("unhealthyPodEvictionPolicy") != "AlwaysAllow":
        yield Problem(
            budget.place,
            "keeps pods that are not ready on a node; set unhealthyPodEvictionPolicy: AlwaysAllow",
        )


def _check_binding(resource: Resource, known: Known, expected: Expected) -> Iterator[Problem]:
    if resource.kind not in {"RoleBinding", "ClusterRoleBinding"}:
        return
    role = resource.body["roleRef"]
    namespace = resource.namespace if role["kind"] == "Role" else ""
    if (role["kind"], namespace, role["name"]) not in known:
        yield Problem(resource.place, f"{role['kind']} {role['name']} does not exist")
    for subject in resource.body["subjects"]:
        account = f"{subject.get('namespace', resource.namespace)}/{subject['name']}"
        is_here = ("ServiceAccount", *account.split("/")) in known
        if not is_here and account not in expected.service_accounts:
            yield Problem(resource.place, f"ServiceAccount {account} is neither here nor expected")


def _check_queue(resource: Resource, known: Known) -> Iterator[Problem]:
    if resource.kind == "LocalQueue":
        wanted = [("ClusterQueue", resource.spec["clusterQueue"])]
    elif resource.kind == "ClusterQueue":
        groups = resource.spec["resourceGroups"]
        covered = {name for group in groups for name in group["coveredResources"]}
        for asked in sorted(_asked_by_default(known) - covered):
            yield Problem(
                resource.place,
                f"does not cover {asked}, which a LimitRange makes every pod ask for: all would stay pending",
            )
        wanted = [("ResourceFlavor", flavor["name"]) for group in groups for flavor in group["flavors"]]
    else:
        return
    for kind, name in wanted:
        if (kind, "", name) not in known:
            yield Problem(resource.place, f"{kind} {name} does not exist")


def _asked_by_default(known: Known) -> set[str]:
    ranges = [resource.spec["limits"] for (kind, _, _), resource in known.items() if kind == "LimitRange"]
    return {name for limits in ranges for limit in limits for name in limit.get("defaultRequest", {})}


def _has_namespace(resource: Resource, known: Known, expected: Expected) -> bool:
    foreign = {pod.namespace for pod in expected.pods.values()}
    return ("Namespace", "", resource.namespace) in known or resource.namespace in foreign
