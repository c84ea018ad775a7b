"""Rules for each pod by itself: images, security, resources, probes, secrets."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from manifests.check.resources import Pod, Problem, Resource, matches

SECRET_NAMES = re.compile(r"(password|passwd|secret|token|api_?key|access_?key|credential)", re.IGNORECASE)
NO_SIDECAR = "sidecar.istio.io/inject"
PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----|AKIA[0-9A-Z]{16}")
UNITS = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
PLACEHOLDERS = re.compile(r"example\.(com|org|net)|192\.0\.2\.\d+")


def check_pod(pod: Pod) -> Iterator[Problem]:
    """Everything that holds for every pod of ours."""
    yield from _check_pod_security(pod)
    if pod.labels.get(NO_SIDECAR) != "false":
        yield Problem(
            pod.place,
            f'is not labelled {NO_SIDECAR}: "false"; an Istio sidecar would wait for its control plane, and '
            "refuse runs",
        )
    for container in pod.containers:
        place = f"{pod.place}, container {container['name']}"
        for what in (
            *_image_problems(container["image"]),
            *_security_problems(container),
            *_resource_problems(container.get("resources", {})),
        ):
            yield Problem(place, what)
        for variable in container.get("env", []):
            if _holds_secret(variable):
                yield Problem(
                    place, f"env {variable['name']} holds a plain value; use a Secret's file, or secretKeyRef"
                )
    yield from _check_disk(pod)
    yield from _check_probes(pod)
    yield from _check_gpu(pod)
    yield from _check_spread(pod)


def _holds_secret(variable: Mapping[str, Any]) -> bool:
    """A secret written out; the path of a file that holds one (`..._FILE`) is none."""
    value = variable.get("value", "")
    names_a_file = variable["name"].endswith("_FILE") and value.startswith("/")
    return bool(value and SECRET_NAMES.search(variable["name"]) and not names_a_file)


def _check_pod_security(pod: Pod) -> Iterator[Problem]:
    context = pod.spec.get("securityContext", {})
    if context.get("runAsNonRoot") is not True or not context.get("runAsUser"):
        yield Problem(pod.place, "may run as root; set runAsNonRoot and a runAsUser other than 0")
    if context.get("seccompProfile", {}).get("type") != "RuntimeDefault":
        yield Problem(pod.place, "no seccompProfile RuntimeDefault")
    if pod.spec.get("automountServiceAccountToken") is not False:
        yield Problem(pod.place, "mounts a service account's token; set automountServiceAccountToken: false")
    if pod.spec.get("enableServiceLinks") is not False:
        yield Problem(pod.place, "enableServiceLinks is on; services' variables may collide with settings")
    for key in ("hostNetwork", "hostPID", "hostIPC"):
        if pod.spec.get(key):
            yield Problem(pod.place, f"{key} is set")
    for volume in pod.spec.get("volumes", []):
        if "hostPath" in volume:
            yield Problem(pod.place, f"volume {volume['name']} is a hostPath")
        if "emptyDir" in volume and not volume["emptyDir"].get("sizeLimit"):
            yield Problem(pod.place, f"volume {volume['name']} has no sizeLimit")


def _image_problems(image: str) -> Iterator[str]:
    name, _, digest = image.partition("@")
    tag = name.rpartition(":")[2] if ":" in name.rpartition("/")[2] else ""
    if tag == "latest" or not (tag or digest):
        yield f"image {image} has no fixed tag or digest"
    if digest and not re.fullmatch(r"sha256:[0-9a-f]{64}", digest):
        yield f"image {image}: the digest is not sha256 and 64 hexadecimal digits"


def _security_problems(container: Mapping[str, Any]) -> Iterator[str]:
    context = container.get("securityContext", {})
    if context.get("readOnlyRootFilesystem") is not True:
        yield "the root file system can be written; set readOnlyRootFilesystem"
    if context.get("allowPrivilegeEscalation") is not False:
        yield "may gain privileges; set allowPrivilegeEscalation: false"
    if context.get("privileged") or context.get("runAsUser") == 0 or context.get("runAsNonRoot") is False:
        yield "is privileged or runs as root"
    if context.get("capabilities", {}).get("drop") != ["ALL"] or context["capabilities"].get("add"):
        yield "keeps capabilities; drop ALL and add none"


def _resource_problems(resources: Mapping[str, Any]) -> Iterator[str]:
    for part in ("requests", "limits"):
        for resource in ("cpu", "memory", "ephemeral-storage"):
            if resource not in resources.get(part, {}):
                yield f"no {part}.{resource}"
    asked, allowed = (resources.get(part, {}).get("nvidia.com/gpu") for part in ("requests", "limits"))
    if asked != allowed:
        yield f"requests {asked} and limits {allowed} of nvidia.com/gpu must be equal"


def _check_disk(pod: Pod) -> Iterator[Problem]:
    """The kubelet evicts a pod whose volumes on disk, logs and files exceed the sum of its limits."""
    volumes = [volume.get("emptyDir", {}) for volume in pod.spec.get("volumes", [])]
    needed = sum(_bytes(each.get("sizeLimit")) for each in volumes if each.get("medium") != "Memory")
    limits = [item.get("resources", {}).get("limits", {}) for item in pod.spec["containers"]]
    allowed = sum(_bytes(each.get("ephemeral-storage")) for each in limits)
    if needed and needed >= allowed:
        yield Problem(
            pod.place,
            f"its volumes may hold {needed / 2**30:g} GiB of disk and limits.ephemeral-storage allow "
            f"{allowed / 2**30:g} GiB: the kubelet would evict it",
        )


def _bytes(quantity: str | int | None) -> float:
    """The bytes of a Kubernetes quantity of storage; 0 without one."""
    if not isinstance(quantity, str):
        return float(quantity or 0)
    unit = next((name for name in UNITS if quantity.endswith(name)), "")
    return float(quantity.removesuffix(unit)) * UNITS.get(unit, 1)


def _check_gpu(pod: Pod) -> Iterator[Problem]:
    if not any("nvidia.com/gpu" in item.get("resources", {}).get("limits", {}) for item in pod.containers):
        return
    if not pod.spec.get("nodeSelector"):
        yield Problem(pod.place, "uses a GPU, but has no nodeSelector for a pool")
    if not any(item.get("key") == "nvidia.com/gpu" for item in pod.spec.get("tolerations", [])):
        yield Problem(pod.place, "uses a GPU, but does not tolerate the taint nvidia.com/gpu")


def _check_spread(pod: Pod) -> Iterator[Problem]:
    """Several pods of one workload are put on several nodes where there are."""
    if pod.owner is None or int(pod.owner.spec.get("replicas", 1)) < 2:
        return
    spreads = [
        item
        for item in pod.spec.get("topologySpreadConstraints", [])
        if item["topologyKey"] == "kubernetes.io/hostname" and matches(item.get("labelSelector"), pod.labels)
    ]
    if not spreads:
        yield Problem(pod.place, "no topologySpreadConstraint over kubernetes.io/hostname for its own pods")


def _check_probes(pod: Pod) -> Iterator[Problem]:
    """Servers say when they are ready, and end after no more is sent to them; a probe's port is one of the
    container's."""
    is_replaced = pod.owner is not None and pod.owner.kind == "Deployment"
    for container in pod.spec.get("containers", []):
        place = f"{pod.place}, container {container['name']}"
        ports = {port.get("name") for port in container.get("ports", [])}
        ports |= {port["containerPort"] for port in container.get("ports", [])}
        if ports and is_replaced and "preStop" not in container.get("lifecycle", {}):
            yield Problem(place, "serves, but has no lifecycle.preStop: requests are refused while it ends")
        for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
            probe = container.get(kind)
            if ports and probe is None:
                yield Problem(place, f"serves, but has no {kind}")
            elif probe is not None and probe["httpGet"]["port"] not in ports:
                yield Problem(place, f"{kind} asks port {probe['httpGet']['port']}, which it does not serve")


def check_no_secret(resource: Resource) -> Iterator[Problem]:
    """Secrets are referred to by name, never written down."""
    if resource.kind == "Secret":
        yield Problem(
            resource.place,
            "a Secret must not be in the manifests; create it as docs/cluster/operations.md says",
        )
    for text in _texts(resource.body):
        if PRIVATE_KEY.search(text):
            yield Problem(resource.place, "holds what looks like a private or access key")


def check_installable(resources: list[Resource], pods: list[Pod]) -> Iterator[Problem]:
    """Check that a site has filled in its own values: registry and digest of each image, addresses."""
    for resource in resources:
        for text in _texts(resource.body):
            found = PLACEHOLDERS.search(text)
            if found:
                yield Problem(resource.place, f"still has the placeholder {found[0]!r} in {text[:80]!r}")
    for pod in pods:
        for container in pod.containers:
            image = container["image"]
            if "@sha256:" not in image:
                yield Problem(f"{pod.place}, container {container['name']}", f"image {image} has no digest")


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for child in value.values():
            yield from _texts(child)
    elif isinstance(value, list):
        for child in value:
            yield from _texts(child)
