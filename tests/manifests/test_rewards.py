"""The server of rewards that learn on a cluster: a Deployment, and the same as KServe's InferenceService."""

from pathlib import Path

import pytest

from cooper_rl.__main__ import build_parser
from cooper_rl.config.load import load_learn
from cooper_rl.config.serve import LearnConfig
from manifests.check.__main__ import check
from manifests.check.references import ForeignPod, read_expected
from manifests.check.resources import Pod, Resource, pods_of
from tests.manifests.test_overlays import MANIFESTS, find, kustomize

VARIANTS = ("rewards", "rewards-kserve")
COMPONENTS = MANIFESTS / "components"
both = pytest.mark.parametrize("name", VARIANTS)


def server_in(resources: list[Resource]) -> Pod:
    return next(pod for pod in pods_of(resources) if pod.owner and pod.owner.name == "rewards")


def read_command(pod: Pod) -> LearnConfig:
    (container,) = pod.spec["containers"]
    command = [*container["command"], *container["args"]]
    assert command[0] == "cooper-rl"
    return load_learn(build_parser().parse_args(command[1:]).overrides)


@both
def test_the_pod_is_left_alone_until_every_run_is_saved(name: str, rendered) -> None:
    """Kubernetes waits longer than the hook and the server's own grace period together."""
    pod = server_in(rendered(name))
    hook = int(pod.spec["containers"][0]["lifecycle"]["preStop"]["exec"]["command"][1])
    assert pod.spec["terminationGracePeriodSeconds"] >= hook + read_command(pod).grace_seconds + 10


@both
def test_there_is_never_a_second_server_on_one_state(name: str, rendered) -> None:
    pod = server_in(rendered(name))
    assert pod.owner is not None
    assert (pod.owner.spec["replicas"], pod.owner.spec["strategy"]) == (1, {"type": "Recreate"})
    claim = find(rendered(name), "PersistentVolumeClaim", "rewards-state")
    assert claim.spec["accessModes"] == ["ReadWriteOncePod"]
    mounts = {mount["name"]: mount["mountPath"] for mount in pod.spec["containers"][0]["volumeMounts"]}
    volume = next(item for item in pod.spec["volumes"] if item["name"] == "data")
    assert volume["persistentVolumeClaim"] == {"claimName": "rewards-state"}
    state = next(word for word in pod.spec["containers"][0]["args"] if word.startswith("--state="))
    # Not the volume's root: each folder in the state is a run, and a file system makes lost+found there.
    assert Path(state.partition("=")[2]).parent == Path(mounts["data"])


@both
def test_a_server_that_catches_up_is_alive_and_not_ready(name: str, rendered) -> None:
    """Steps that are taken again after a kill may outlast any limit of a start."""
    (container,) = server_in(rendered(name)).spec["containers"]
    paths = {
        kind: container[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "liveness", "readiness")
    }
    assert paths == {"startup": "/healthz", "liveness": "/healthz", "readiness": "/readyz"}


@both
def test_the_quota_has_room_for_the_server_of_rewards(name: str, rendered) -> None:
    quota = find(rendered(name), "ResourceQuota", "cooper-rl").spec["hard"]["requests.nvidia.com/gpu"]
    without = find(rendered("minio"), "ResourceQuota", "cooper-rl").spec["hard"]["requests.nvidia.com/gpu"]
    (container,) = server_in(rendered(name)).spec["containers"]
    assert int(quota) == int(without) + int(container["resources"]["limits"]["nvidia.com/gpu"])


@both
def test_with_a_certificate_everything_speaks_tls(name: str, tmp_path: Path) -> None:
    overlay = MANIFESTS / "overlays" / name
    components = [COMPONENTS / "monitoring/rewards", COMPONENTS / "rewards-tls"]
    resources = kustomize(tmp_path, resources=[overlay], components=components)
    assert check(resources, read_expected(overlay)) == []
    pod = server_in(resources)
    config = read_command(pod)
    assert (config.unprotected, config.tls_certificate, config.tls_key) == (
        (),
        Path("/tls/tls.crt"),
        Path("/tls/tls.key"),
    )
    (container,) = pod.spec["containers"]
    for kind in ("startup", "liveness", "readiness"):
        assert container[f"{kind}Probe"]["httpGet"]["scheme"] == "HTTPS"
    monitor = find(resources, "PodMonitor", "rewards").spec["podMetricsEndpoints"][0]
    assert (monitor["scheme"], monitor["tlsConfig"]["ca"]["secret"]["name"]) == ("https", "rewards-tls")
    assert template_annotations(resources)["prometheus.io/scheme"] == "https"


def template_annotations(resources: list[Resource]) -> dict[str, str]:
    owner = server_in(resources).owner
    assert owner is not None
    return owner.spec["template"]["metadata"]["annotations"]


@both
def test_prometheus_reads_the_rewards_with_their_token_and_no_other_pod_does(
    name: str, tmp_path: Path
) -> None:
    overlay = MANIFESTS / "overlays" / name
    resources = kustomize(tmp_path, resources=[overlay], components=[COMPONENTS / "monitoring/rewards"])
    expected = read_expected(overlay)
    pods = {
        name: ForeignPod(namespace="monitoring", labels={"app.kubernetes.io/name": name})
        for name in ("prometheus", "grafana")
    }
    wanted = expected.model_copy(
        update={
            "pods": expected.pods | pods,
            "allowed": [*expected.allowed, "prometheus -> rewards:8080"],
            "refused": [*expected.refused, "grafana -> rewards:8080"],
        }
    )
    assert check(resources, wanted) == []
    annotations = template_annotations(resources)
    (container,) = server_in(resources).spec["containers"]
    assert annotations["prometheus.io/port"] == str(container["ports"][0]["containerPort"])
    assert annotations["prometheus.io/path"] == "/metrics"


@pytest.mark.parametrize("name", ["verify-rm", "rewards"])
def test_prometheus_sends_the_token_of_a_server_that_asks_for_one(name: str, tmp_path: Path) -> None:
    """/metrics is no open page: without it every scrape is answered 401."""
    resources = kustomize(
        tmp_path,
        resources=[MANIFESTS / "overlays/rewards"],
        components=[COMPONENTS / "monitoring" / each for each in ("servers", "rewards")],
    )
    endpoint = find(resources, "PodMonitor", name).spec["podMetricsEndpoints"][0]
    pod = next(pod for pod in pods_of(resources) if pod.owner and pod.owner.name == name)
    token = next(volume["secret"] for volume in pod.spec["volumes"] if volume["name"] == "token")
    assert endpoint["authorization"]["credentials"] == {"name": token["secretName"], "key": "token"}


def test_what_an_overlay_expects_holds_beside_that_of_the_one_it_extends() -> None:
    minio, rewards, kserve = (read_expected(MANIFESTS / "overlays" / name) for name in ("minio", *VARIANTS))
    assert rewards.secrets == minio.secrets | {
        "cooper-rl/rewards-token": ["token"],
        "cooper-rl/rewards-tls": ["tls.crt", "tls.key", "ca.crt"],
    }
    assert set(minio.refused) < set(rewards.refused)
    assert kserve.model_copy(update={"extends": None}) == rewards
