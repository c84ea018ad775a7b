"""Rules for NetworkPolicies: they are evaluated as Kubernetes does, for every connection that is needed.

Needed are those that `expects.yaml` lists, and those that a pod's own addresses (`http://service:port`) show.
"""

import ipaddress
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from manifests.check.references import Expected
from manifests.check.resources import Pod, Problem, Resource, matches

DNS = Pod("kube-system", {"k8s-app": "kube-dns"})
URL = re.compile(r"https?://([a-z0-9.-]+):(\d+)")


class Connection(NamedTuple):
    """One TCP connection; `target` is a pod, or an address outside the cluster's pods."""

    source: Pod | str
    target: Pod | str
    port: int


def check_network(resources: list[Resource], pods: list[Pod], expected: Expected) -> Iterator[Problem]:
    """Default deny in namespaces of ours; names resolve; what is needed passes, what is refused does not."""
    policies = [resource for resource in resources if resource.kind == "NetworkPolicy"]
    for namespace in (resource.name for resource in resources if resource.kind == "Namespace"):
        if not any(policy.namespace == namespace and _denies_all(policy) for policy in policies):
            yield Problem(f"Namespace {namespace}", "has no NetworkPolicy that denies everything by default")
    for pod in pods:
        if not _passes(policies, Connection(pod, DNS, 53)):
            yield Problem(pod.place, "cannot ask for names: no policy lets it reach kube-dns")
    named = {pod.owner.name: pod for pod in pods if pod.owner}
    named |= {
        name: Pod(pod.namespace, pod.labels, namespace_labels=pod.namespace_labels)
        for name, pod in expected.pods.items()
    }
    addresses = {name: _address_in(policies, policy) for name, policy in expected.addresses.items()}
    for line, is_wanted in _declared(expected):
        connection = _read_connection(line, {**named, **addresses})
        if connection is None:
            yield Problem(
                "expects.yaml",
                f"{line!r} names nobody that is known; known: {sorted({**named, **addresses})}",
            )
        elif _passes(policies, connection) != is_wanted:
            yield Problem("NetworkPolicies", f"{line!r} is {'refused' if is_wanted else 'let through'}")
    yield from _check_addresses(resources, pods, policies)


def _declared(expected: Expected) -> list[tuple[str, bool]]:
    return [(line, True) for line in expected.allowed] + [(line, False) for line in expected.refused]


def _denies_all(policy: Resource) -> bool:
    spec = policy.spec
    is_empty = not spec.get("ingress") and not spec.get("egress")
    return not spec["podSelector"] and set(spec["policyTypes"]) == {"Ingress", "Egress"} and is_empty


def _address_in(policies: Sequence[Resource], name: str) -> str | None:
    """The first address that a policy of this name writes out."""
    for policy in policies:
        for rule in policy.spec.get("egress", []) if policy.name == name else []:
            for peer in rule.get("to", []):
                if "ipBlock" in peer:
                    return str(ipaddress.ip_network(peer["ipBlock"]["cidr"])[0])
    return None


def _read_connection(line: str, named: Mapping[str, Pod | str | None]) -> Connection | None:
    source, _, rest = (part.strip() for part in line.partition("->"))
    target, _, port = rest.rpartition(":")
    ends = [named.get(end) or (end if _is_address(end) else None) for end in (source, target)]
    if ends[0] is None or ends[1] is None:
        return None
    return Connection(ends[0], ends[1], int(port))


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _check_addresses(
    resources: list[Resource], pods: list[Pod], policies: Sequence[Resource]
) -> Iterator[Problem]:
    """Every in-cluster address in a pod's command, arguments or environment: service, port, way."""
    services = {(item.namespace, item.name): item for item in resources if item.kind == "Service"}
    for pod in pods:
        for text in _words(pod):
            text = re.sub(r"\{(\d+)\.\.\.\d+\}", r"\1", text)  # MinIO's way to say 0 to 3: {0...3}
            for host, port in URL.findall(text):
                parts = [*host.split("."), pod.namespace, ""]
                # service.namespace..., or pod.service.namespace... below a headless service
                service = services.get((parts[1], parts[0])) or services.get((parts[2], parts[1]))
                if service is None:
                    if host.endswith(".svc.cluster.local"):
                        yield Problem(pod.place, f"{host} is no service of the render")
                    continue
                yield from _check_way(pod, service, int(port), pods=pods, policies=policies)


def _check_way(
    pod: Pod, service: Resource, port: int, *, pods: list[Pod], policies: Sequence[Resource]
) -> Iterator[Problem]:
    if port not in {item["port"] for item in service.spec["ports"]}:
        yield Problem(pod.place, f"{service.place} has no port {port}")
        return
    selector = {"matchLabels": service.spec["selector"]}
    for target in pods:
        is_chosen = target.namespace == service.namespace and matches(selector, target.labels)
        if is_chosen and not _passes(policies, Connection(pod, target, port)):
            yield Problem(pod.place, f"no policy lets it reach {service.place} on port {port}")


def _words(pod: Pod) -> Iterator[str]:
    for container in pod.containers:
        yield from container.get("command", [])
        yield from container.get("args", [])
        yield from (str(variable.get("value", "")) for variable in container.get("env", []))


def _passes(policies: Sequence[Resource], connection: Connection) -> bool:
    """Both ends must agree; an end that no policy selects agrees to everything."""
    return _agrees(policies, connection, "Egress") and _agrees(policies, connection, "Ingress")


def _agrees(policies: Sequence[Resource], connection: Connection, direction: str) -> bool:
    own, other = connection.source, connection.target
    if direction == "Ingress":
        own, other = other, own
    if isinstance(own, str):
        return True
    chosen = [
        policy
        for policy in policies
        if policy.namespace == own.namespace
        and direction in policy.spec["policyTypes"]
        and matches(policy.spec["podSelector"], own.labels)
    ]
    rules = [rule for policy in chosen for rule in policy.spec.get(direction.lower(), [])]
    return not chosen or any(_lets_through(rule, own, other, connection.port, direction) for rule in rules)


def _lets_through(rule: Mapping[str, Any], own: Pod, other: Pod | str, port: int, direction: str) -> bool:
    ports = rule.get("ports")
    if ports and not any(item.get("protocol", "TCP") == "TCP" and item.get("port") == port for item in ports):
        return False
    peers = rule.get("from" if direction == "Ingress" else "to")
    return not peers or any(_is_peer(peer, own, other) for peer in peers)


def _is_peer(peer: Mapping[str, Any], own: Pod, other: Pod | str) -> bool:
    if isinstance(other, str):
        block = peer.get("ipBlock")
        return block is not None and ipaddress.ip_address(other) in ipaddress.ip_network(block["cidr"])
    if "ipBlock" in peer:
        return False
    if "namespaceSelector" in peer:
        name = {"kubernetes.io/metadata.name": other.namespace}
        if not matches(peer["namespaceSelector"], {**other.namespace_labels, **name}):
            return False
    elif other.namespace != own.namespace:
        return False
    return matches(peer.get("podSelector"), other.labels)
