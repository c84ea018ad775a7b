"""The servers of VerifyRM as KServe's InferenceServices, each beside the Deployment that it replaces."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from manifests.check.references import read_expected
from manifests.check.resources import Pod, Resource, pods_of
from manifests.check.schemas import check_schema
from tests.manifests.test_overlays import MANIFESTS, find
from tests.manifests.test_rules import broken, expect

Rendered = Callable[[str], list[Resource]]
STANDARD = ("metadata", "annotations", "serving.kserve.io/deploymentMode")
VISIBILITY = ("metadata", "labels", "networking.kserve.io/visibility")
SCALER = ("metadata", "annotations", "serving.kserve.io/autoscalerClass")


class Server(NamedTuple):
    """One server, and the overlays that have it."""

    name: str
    plain: str
    kserve: str


SERVERS = (Server("rewards", "rewards", "rewards-kserve"), Server("verify-rm", "minio", "verify-rm-kserve"))
each_server = pytest.mark.parametrize("server", SERVERS, ids=[server.name for server in SERVERS])


def pod_of(resources: list[Resource], name: str) -> Pod:
    return next(pod for pod in pods_of(resources) if pod.owner and pod.owner.name == name)


@each_server
def test_both_variants_have_one_pod_and_one_address(server: Server, rendered: Rendered) -> None:
    """But for the name that KServe wants its container to have."""
    variants = [rendered(name) for name in (server.plain, server.kserve)]
    plain, kserve = (pod_of(resources, server.name) for resources in variants)
    containers = [dict(pod.spec["containers"][0]) for pod in (plain, kserve)]
    assert [container.pop("name") for container in containers] == [server.name, "kserve-container"]
    assert containers[0] == containers[1]
    assert {**plain.spec, "containers": None} == {**kserve.spec, "containers": None}
    assert plain.labels == kserve.labels
    assert plain.owner is not None
    assert kserve.owner is not None
    for key in ("replicas", "strategy"):
        assert plain.owner.spec[key] == kserve.owner.spec[key]
    services = [find(resources, "Service", server.name).body for resources in variants]
    assert services[0] == services[1]


@each_server
def test_the_inference_service_is_all_that_differs(server: Server, rendered: Rendered) -> None:
    plain, kserve = (
        {(item.kind, item.namespace, item.name): item.body for item in rendered(name)}
        for name in (server.plain, server.kserve)
    )
    assert plain.keys() - kserve.keys() == {("Deployment", "cooper-rl", server.name)}
    assert kserve.keys() - plain.keys() == {("InferenceService", "cooper-rl", server.name)}
    assert all(plain[key] == kserve[key] for key in plain.keys() & kserve.keys())


@each_server
def test_kserve_scales_no_server(server: Server, rendered: Rendered) -> None:
    predictor = find(rendered(server.kserve), "InferenceService", server.name).spec["predictor"]
    assert predictor["minReplicas"] == predictor["maxReplicas"]


ROLLED = ("spec", "predictor", "deploymentStrategy", "type")


@pytest.mark.parametrize(
    ("overlay", "path", "value", "what"),
    [
        ("rewards-kserve", STANDARD, "Knative", "'Standard' was expected"),
        ("rewards-kserve", SCALER, "hpa", "'none' was expected"),
        ("rewards-kserve", VISIBILITY, "exposed", "'cluster-local' was expected"),
        ("rewards-kserve", ("spec", "predictor", "minReplicas"), 2, "1 was expected"),
        ("rewards-kserve", ("spec", "predictor", "maxReplicas"), 2, "1 was expected"),
        ("rewards-kserve", ("spec", "predictor", "model"), {}, "Additional properties are not allowed"),
        (
            "rewards-kserve",
            ("spec", "predictor", "containers", 0, "name"),
            "rewards",
            "'kserve-container' was expected",
        ),
        ("rewards-kserve", ("spec", "predictor", "containers", 0, "port"), 1, "Kubernetes 1.31"),
        ("rewards-kserve", ROLLED, "RollingUpdate", "'Recreate' was expected"),
        ("verify-rm-kserve", STANDARD, "Knative", "'Standard' was expected"),
        ("verify-rm-kserve", VISIBILITY, "exposed", "'cluster-local' was expected"),
        ("verify-rm-kserve", ("spec", "predictor", "minReplicas"), 0, "less than the minimum of 1"),
        ("verify-rm-kserve", ROLLED, "Sometimes", "is not one of ['Recreate', 'RollingUpdate']"),
        ("verify-rm-kserve", ("spec", "predictor", "containers", 0, "port"), 1, "Kubernetes 1.31"),
    ],
)
def test_an_inference_service_of_the_wrong_form_is_found(
    overlay: str, path: tuple[str | int, ...], value: Any, what: str, rendered: Rendered
) -> None:
    name = overlay.removesuffix("-kserve")
    resources = broken(rendered(overlay), "InferenceService", name, path, value)
    (changed,) = (item for item in resources if item.kind == "InferenceService")
    expect(list(check_schema(changed)), name, what)


def test_policies_are_held_to_what_the_overlay_without_kserve_expects() -> None:
    for server in SERVERS:
        plain, kserve = (
            read_expected(MANIFESTS / "overlays" / name) for name in (server.plain, server.kserve)
        )
        assert kserve.model_copy(update={"extends": plain.extends}) == plain
