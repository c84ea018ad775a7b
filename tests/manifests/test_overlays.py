"""Every overlay renders offline and breaks no rule; what it installs fits the package and Kubeflow."""

import json
import os
import re
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml

from cooper_rl.__main__ import build_parser
from cooper_rl.cluster.task import AGAIN, FINAL
from cooper_rl.config.load import load, load_learn, load_serve
from cooper_rl.storage import buckets as prepare_buckets
from cooper_rl.storage import models as fetch_model
from manifests.check.__main__ import check, main
from manifests.check.references import ForeignPod, read_expected
from manifests.check.resources import RenderError, Resource, matches, parse, pods_of, render

MANIFESTS = Path(__file__).parent.parent.parent / "manifests"
OVERLAYS = sorted(path.parent.name for path in (MANIFESTS / "overlays").glob("*/kustomization.yaml"))
KFP = Path(__file__).parent / "kubeflow_pipelines"


def find(resources: list[Resource], kind: str, name: str) -> Resource:
    return next(item for item in resources if (item.kind, item.name) == (kind, name))


def kustomize(folder: Path, **content: object) -> list[Resource]:
    """Render a kustomization in a folder of its own."""
    for key in ("resources", "components"):
        paths = content.get(key, [])
        assert isinstance(paths, list)
        content[key] = [os.path.relpath(path, folder) for path in paths]
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(content))
    return render(folder)


@pytest.mark.parametrize("name", OVERLAYS)
def test_an_overlay_breaks_no_rule(name: str, rendered) -> None:
    problems = check(rendered(name), read_expected(MANIFESTS / "overlays" / name))
    assert not problems, "\n".join(map(str, problems))


def test_the_command_says_what_holds_and_what_a_site_has_to_fill_in(capsys) -> None:
    """The example is refused for an installation: its registry, its addresses and two digests are missing."""
    assert main([str(MANIFESTS / "overlays" / "example-site"), "--for-installation"]) == 1
    found = capsys.readouterr().out
    assert "NetworkPolicy cooper-rl/api-server: still has the placeholder '192.0.2.1'" in found
    assert "image registry.example.com/cooper-rl-gpu:0.2.0 has no digest" in found
    assert "image registry.example.com/minio" not in found  # pinned by digest already
    assert "'registry.example.com/minio" in found


def test_a_site_that_is_filled_in_may_be_installed() -> None:
    """The example with a registry, digests and an address of its own."""
    folder = MANIFESTS / "overlays" / "example-site"
    text = "---\n".join(yaml.safe_dump(dict(resource.body)) for resource in render(folder))
    text = text.replace("registry.example.com", "registry.lan").replace("192.0.2.1/32", "10.0.0.1/32")
    text = re.sub(r"(registry\.lan/cooper-rl-[cg]pu):[\d.]+", rf"\1@sha256:{'a' * 64}", text)
    assert check(parse(text), read_expected(folder), for_installation=True) == []


def test_images_carry_the_version_of_the_package(rendered) -> None:
    found = {
        container["image"]
        for name in ("minio", "standalone")
        for pod in pods_of(rendered(name))
        for container in pod.containers
    }
    ours = {image for image in found if image.startswith("cooper-rl-")}
    assert ours == {f"cooper-rl-cpu:{version('cooper-rl')}", f"cooper-rl-gpu:{version('cooper-rl')}"}
    assert all("@sha256:" in image for image in found - ours)


@pytest.mark.parametrize("name", OVERLAYS)
def test_pods_with_our_images_choose_their_nodes(name: str, rendered) -> None:
    """The images are for x86-64, and a cluster may have other nodes too."""
    for pod in pods_of(rendered(name)):
        if any("cooper-rl-" in container["image"] for container in pod.containers):
            assert {"cooper-rl.io/pool", "kubernetes.io/arch"} & set(pod.spec.get("nodeSelector", {})), (
                pod.place
            )


@pytest.mark.parametrize("name", OVERLAYS)
def test_commands_of_containers_parse(name: str, rendered) -> None:
    """Those of ours, with their own parsers: a renamed option must not be found out on a cluster."""
    seen: set[str] = set()
    for pod in pods_of(rendered(name)):
        for container in pod.containers:
            command = [*container["command"], *container["args"]]
            seen.add(command[0])
            if command[:3] == ["python", "-m", "cooper_rl.storage.models"]:
                fetch_model.build_parser().parse_args(command[3:])
            elif command[:3] == ["python", "-m", "cooper_rl.storage.buckets"]:
                prepare_buckets.build_parser().parse_args(command[3:])
            elif command[0] == "cooper-rl":
                options = build_parser().parse_args(command[1:])
                read = load_learn if command[1] == "serve" else load_serve
                assert read(options.overrides).host == "0.0.0.0"
            else:
                assert command[:2] in (["minio", "server"], ["vllm", "serve"])
    assert {"python", "vllm"} <= seen


@pytest.mark.parametrize("name", ["minio", "external-s3"])
def test_the_paper_preset_finds_its_servers_in_the_run_namespace(name: str, rendered) -> None:
    config = load("paper", ["models.policy=x"])
    judge, assistant = config.labeling.judge, config.cooper.pairs.assistant
    assert judge is not None
    assert assistant is not None
    for server, role in ((judge.server, "judge"), (assistant.server, "assistant")):
        assert server is not None
        port = find(rendered(name), "Service", role).spec["ports"][0]["port"]
        assert server.base_url == f"http://{role}:{port}/v1"
        deployment = find(rendered(name), "Deployment", role)
        environment = deployment.spec["template"]["spec"]["containers"][0]["env"]
        assert {"name": "MODEL_NAME", "value": server.model} in environment


@pytest.mark.parametrize("name", sorted({*OVERLAYS} - {"standalone"}))
def test_runs_keep_artifacts_where_the_store_is(name: str, rendered) -> None:
    """kfp-launcher names the same server as the servers' own containers, and keys that the secret has."""
    launcher = find(rendered(name), "ConfigMap", "kfp-launcher")
    assert launcher.body["data"]["defaultPipelineRoot"] == (
        f"s3://mlpipeline/private-artifacts/{launcher.namespace}/v2/artifacts"
    )
    store = yaml.safe_load(launcher.body["data"]["providers"])["s3"]["default"]
    fetch = find(rendered(name), "Deployment", "judge").spec["template"]["spec"]["initContainers"][0]
    assert f"--endpoint={store['endpoint']}" == fetch["args"][0]
    assert store["disableSSL"] is store["endpoint"].startswith("http://")
    reference = store["credentials"]["secretRef"]
    keys = read_expected(MANIFESTS / "overlays" / name).secrets[
        f"{launcher.namespace}/{reference['secretName']}"
    ]
    assert {reference["accessKeyKey"], reference["secretKeyKey"]} <= set(keys)


@pytest.mark.parametrize("name", OVERLAYS)
def test_argo_keeps_logs_where_the_store_is_and_where_the_dashboard_looks(
    name: str, rendered, tmp_path: Path
) -> None:
    """In the run's namespace, by the annotation that Argo 4.0.5 goes by."""
    found = find(rendered(name), "ConfigMap", "artifact-repositories")
    key = found.body["metadata"]["annotations"]["workflows.argoproj.io/default-artifact-repository"]
    store = yaml.safe_load(found.body["data"][key])["s3"]
    fetch = find(rendered(name), "Deployment", "judge").spec["template"]["spec"]["initContainers"][0]
    scheme = "http" if store["insecure"] else "https"
    assert f"--endpoint={scheme}://{store['endpoint']}" == fetch["args"][0]
    assert store["accessKeySecret"] == {"name": "object-store-kfp", "key": "access_key"}
    assert store["secretKeySecret"] == {"name": "object-store-kfp", "key": "secret_key"}
    dashboard = kustomize(tmp_path, resources=[KFP], components=[MANIFESTS / "components" / "kfp"])
    (container,) = find(dashboard, "Deployment", "ml-pipeline-ui").spec["template"]["spec"]["containers"]
    assert {"name": "ARGO_KEYFORMAT", "value": store["keyFormat"]} in container["env"]
    assert store["keyFormat"].startswith("private-artifacts/{{workflow.namespace}}/")


def test_the_quota_has_room_for_the_servers_and_the_waiting_tasks(rendered) -> None:
    """Kubernetes counts a pod from its creation, and Kueue queues pods that were created."""
    for name in ("minio", "external-s3"):
        quota = find(rendered(name), "ResourceQuota", "cooper-rl").spec["hard"]["requests.nvidia.com/gpu"]
        servers = sum(
            int(pod.owner.spec["replicas"]) * int(container["resources"]["limits"].get("nvidia.com/gpu", 0))
            for pod in pods_of(rendered(name))
            if pod.owner and pod.owner.kind == "Deployment"
            for container in pod.containers
        )
        group = find(rendered(name), "ClusterQueue", "cooper-rl").spec["resourceGroups"][0]
        shares = {item["name"]: item["nominalQuota"] for item in group["flavors"][0]["resources"]}
        assert int(quota) == servers + 10 * int(shares["nvidia.com/gpu"])


def test_models_may_come_from_a_volume(tmp_path: Path) -> None:
    overlay = MANIFESTS / "overlays" / "minio"
    resources = kustomize(
        tmp_path, resources=[overlay], components=[MANIFESTS / "components" / "models-from-volume"]
    )
    assert check(resources, read_expected(overlay)) == []
    pod = find(resources, "Deployment", "judge").spec["template"]["spec"]
    assert "initContainers" not in pod
    assert pod["containers"][0]["command"] == ["vllm", "serve", "/models/$(MODEL_NAME)"]


def test_one_secret_opens_the_registry_for_every_pod(tmp_path: Path) -> None:
    """By the accounts that pods run as, of which those of the overlay name none but these."""
    overlay = MANIFESTS / "overlays" / "minio"
    resources = kustomize(
        tmp_path, resources=[overlay], components=[MANIFESTS / "components" / "pull-secret"]
    )
    assert check(resources, read_expected(overlay)) == []
    accounts = {
        (item.namespace, item.name): item.body["imagePullSecrets"]
        for item in resources
        if item.kind == "ServiceAccount"
    }
    assert set(map(str, accounts.values())) == {str([{"name": "registry"}])}
    used = {(pod.namespace, pod.spec.get("serviceAccountName", "default")) for pod in pods_of(resources)}
    of_runs = {tuple(name.split("/")) for name in read_expected(overlay).service_accounts}
    assert used | of_runs == set(accounts)


def test_models_are_fetched_from_a_store_that_an_own_authority_vouches_for(tmp_path: Path) -> None:
    overlay = MANIFESTS / "overlays" / "external-s3"
    resources = kustomize(tmp_path, resources=[overlay], components=[MANIFESTS / "components" / "private-ca"])
    assert check(resources, read_expected(overlay)) == []
    for name in ("judge", "assistant", "verify-rm"):
        (fetch,) = find(resources, "Deployment", name).spec["template"]["spec"]["initContainers"]
        (bundle,) = (item["value"] for item in fetch["env"] if item["name"] == "SSL_CERT_FILE")
        assert bundle.rpartition("/")[0] in {mount["mountPath"] for mount in fetch["volumeMounts"]}


def test_an_own_authority_goes_with_models_from_a_volume_as_documented(tmp_path: Path) -> None:
    """In the other order kustomize refuses both: the container that private-ca changes is gone."""
    order = ("private-ca", "models-from-volume")
    documented = (MANIFESTS / "components" / order[0] / "kustomization.yaml").read_text(encoding="utf-8")
    assert f"before\n# components/{order[1]}" in documented
    overlay = MANIFESTS / "overlays" / "external-s3"
    components = [MANIFESTS / "components" / name for name in order]
    resources = kustomize(tmp_path, resources=[overlay], components=components)
    assert check(resources, read_expected(overlay)) == []
    with pytest.raises(RenderError, match="initContainers"):
        kustomize(tmp_path, resources=[overlay], components=components[::-1])


@pytest.mark.parametrize("name", ["minio", "external-s3", "standalone", "rewards", "rewards-kserve"])
def test_servers_may_listen_on_ipv6(name: str, tmp_path: Path) -> None:
    """Every server, and nothing else of it: what does not fit is not rendered."""
    overlay = MANIFESTS / "overlays" / name
    resources = kustomize(tmp_path, resources=[overlay], components=[MANIFESTS / "components" / "ipv6"])
    assert check(resources, read_expected(overlay)) == []
    args = [arg for pod in pods_of(resources) for one in pod.containers for arg in one["args"]]
    assert not [arg for arg in args if "0.0.0.0" in arg]
    assert sum("host=::" in arg for arg in args) >= 2


MONITORING = [MANIFESTS / "components" / "monitoring" / name for name in ("servers", "minio")]


def test_prometheus_reaches_what_it_reads_and_nobody_else_does(tmp_path: Path) -> None:
    overlay = MANIFESTS / "overlays" / "minio"
    resources = kustomize(tmp_path, resources=[overlay], components=MONITORING)
    expected = read_expected(overlay)
    prometheus = ForeignPod(namespace="monitoring", labels={"app.kubernetes.io/name": "prometheus"})
    other = ForeignPod(namespace="monitoring", labels={"app.kubernetes.io/name": "grafana"})
    reads = ["verify-rm:8080", "judge:8000", "assistant:8000", "minio:9000"]
    wanted = expected.model_copy(
        update={
            "pods": {**expected.pods, "prometheus": prometheus, "grafana": other},
            "allowed": [*expected.allowed, *(f"prometheus -> {end}" for end in reads)],
            "refused": [*expected.refused, *(f"grafana -> {end}" for end in reads)],
        }
    )
    assert check(resources, wanted) == []
    for monitor in (item for item in resources if item.kind == "PodMonitor"):
        (endpoint,) = monitor.spec["podMetricsEndpoints"]
        chosen = [
            pod
            for pod in pods_of(resources)
            if pod.namespace == monitor.namespace and matches(monitor.spec["selector"], pod.labels)
        ]
        assert len(chosen) == {"chat-servers": 2}.get(monitor.name, 1)
        for pod in chosen:
            names = {port["name"] for container in pod.containers for port in container.get("ports", [])}
            assert endpoint["port"] in names


def test_the_alert_on_the_queue_sees_tasks_that_wait_for_quota(tmp_path: Path) -> None:
    """Kueue 0.19 counts them as `inadmissible`, not as `active`."""
    resources = kustomize(tmp_path, resources=[MANIFESTS / "overlays" / "minio"], components=MONITORING)
    rules = find(resources, "PrometheusRule", "cooper-rl").spec["groups"][0]["rules"]
    (waits,) = (rule["expr"] for rule in rules if "kueue_pending_workloads" in rule["expr"])
    assert "status" not in waits
    assert 'cluster_queue="cooper-rl"' in waits


def test_kubeflow_pipelines_keeps_everything_in_the_store(tmp_path: Path) -> None:
    """The component on the three objects of Kubeflow's that it patches, as release 2.17 has them."""
    resources = kustomize(tmp_path, resources=[KFP], components=[MANIFESTS / "components" / "kfp"])
    host = "minio.cooper-rl-storage.svc.cluster.local"
    found = {}
    for name in ("ml-pipeline", "ml-pipeline-ui"):
        environment = find(resources, "Deployment", name).spec["template"]["spec"]["containers"][0]["env"]
        for variable in environment:
            assert ("value" in variable) != ("valueFrom" in variable), variable["name"]
            found[variable["name"]] = variable.get("value", variable.get("valueFrom"))
    assert found["OBJECTSTORECONFIG_HOST"] == found["AWS_S3_ENDPOINT"] == host
    assert f"{found['MINIO_HOST']}.{found['MINIO_NAMESPACE']}" == "minio.cooper-rl-storage"
    assert found["OBJECTSTORECONFIG_BUCKETNAME"] == "mlpipeline"
    assert "POD_NAMESPACE" in found  # what the patch does not name stays
    for key in ("OBJECTSTORECONFIG_SECRETACCESSKEY", "AWS_SECRET_ACCESS_KEY", "MINIO_SECRET_KEY"):
        assert found[key] == {"secretKeyRef": {"name": "object-store-kfp", "key": "secret_key"}}
    # Release 2.17.0 adds no port to AWS_S3_ENDPOINT but by this rule (frontend/server/minio-helper.ts).
    assert found["MINIO_ENDPOINT_REWRITE"] == f"{host}=http://{host}:9000"
    assert "AWS_PORT" not in found


def test_an_upgrade_of_kubeflow_pipelines_keeps_where_artifacts_go(tmp_path: Path, rendered) -> None:
    """Its own kustomization empties the ConfigMap; with the component it holds what a profile's has."""
    resources = kustomize(tmp_path, resources=[KFP], components=[MANIFESTS / "components" / "kfp"])
    own = find(resources, "ConfigMap", "kfp-launcher")
    profile = find(rendered("minio"), "ConfigMap", "kfp-launcher")
    assert own.body["data"]["providers"] == profile.body["data"]["providers"]
    assert own.body["data"]["defaultPipelineRoot"] == (
        profile.body["data"]["defaultPipelineRoot"].replace("/cooper-rl/", "/kubeflow/")
    )
    assert not [item for item in rendered("standalone") if item.name == "kfp-launcher"]


def test_a_task_whose_pod_was_lost_is_tried_again_and_neither_a_graph_nor_a_mistake_is(
    tmp_path: Path,
) -> None:
    """The expression was run by Argo 4.0.5's own evaluator on messages like these; here it is only read."""
    resources = kustomize(tmp_path, resources=[KFP], components=[MANIFESTS / "components" / "kfp"])
    controller = find(resources, "ConfigMap", "workflow-controller-configmap").body["data"]
    defaults = yaml.safe_load(controller["workflowDefaults"])["spec"]
    strategy = defaults["templateDefaults"]["retryStrategy"]
    assert (strategy["limit"], strategy["retryPolicy"]) == ("4", "Always")
    assert strategy["backoff"] == {"duration": "5s", "factor": "3"}  # 5 + 15 + 45 + 135 s
    quoted = re.fullmatch(
        r"lastRetry\.message != '' && !\(lastRetry\.message contains '([^']+)'\)", strategy["expression"]
    )
    assert quoted is not None
    assert quoted[1] in FINAL
    assert quoted[1] not in AGAIN
    # The patch replaces whole keys: what the release has in them must be in the patch too.
    assert set(defaults["ttlStrategy"].values()) == {3600}
    executor = yaml.safe_load(controller["executor"])
    assert executor["imagePullPolicy"] == "IfNotPresent"
    assert executor["securityContext"]["runAsUser"] == 65532  # of release 2.17.0
    # Waits of 1, 1.6, 2.6 ... seconds: without this the store may be away for nine.
    (steps,) = [
        int(each["value"]) for each in executor["env"] if each["name"] == "EXECUTOR_RETRY_BACKOFF_STEPS"
    ]
    assert sum(1.6**step for step in range(steps - 1)) > 240
    assert "seaweedfs" in controller["artifactRepository"]  # of other namespaces


def test_kubeflow_pipelines_keeps_its_own_store_and_tries_again_all_the_same(tmp_path: Path) -> None:
    """The component for a Kubeflow whose store stays changes one ConfigMap, as the whole one does."""
    folders = {name: tmp_path / name for name in ("release", "kfp-tries", "kfp")}
    found: dict[str, dict[tuple[str, str], Resource]] = {}
    for name, folder in folders.items():
        folder.mkdir()
        components = [] if name == "release" else [MANIFESTS / "components" / name]
        resources = kustomize(folder, resources=[KFP], components=components)
        found[name] = {(item.kind, item.name): item for item in resources}
    own = found["kfp-tries"]
    changed = {key for key, item in found["release"].items() if item.body != own[key].body}
    controller = ("ConfigMap", "workflow-controller-configmap")
    assert changed == {controller}
    assert own[controller].body == found["kfp"][controller].body


def test_runs_may_keep_their_artifacts_in_kubeflows_own_store(tmp_path: Path) -> None:
    """Kubeflow's controller makes both ConfigMaps then; runs reach its store, other pods of ours do not."""
    component = MANIFESTS / "components" / "kubeflow-store"
    resources = kustomize(tmp_path, resources=[MANIFESTS / "overlays" / "minio"], components=[component])
    names = {(item.kind, item.name) for item in resources}
    assert not names & {("ConfigMap", "kfp-launcher"), ("ConfigMap", "artifact-repositories")}
    labels = find(resources, "Namespace", "cooper-rl").body["metadata"]["labels"]
    assert labels["pipelines.kubeflow.org/enabled"] == "true"
    assert labels["app.kubernetes.io/part-of"] == "kubeflow-profile"  # SeaweedFS admits runs by it
    expected = read_expected(MANIFESTS / "overlays" / "minio")
    store = {"seaweedfs": ForeignPod(namespace="kubeflow", labels={"app": "seaweedfs"})}
    expected = expected.model_copy(
        update={
            "pods": expected.pods | store,
            "allowed": [*expected.allowed, "run -> seaweedfs:8333"],
            "refused": [
                *expected.refused,
                "run -> seaweedfs:8111",  # where keys are made
                "trainjob -> seaweedfs:8333",
                "judge -> seaweedfs:8333",
                "stranger -> seaweedfs:8333",
            ],
        }
    )
    assert check(resources, expected) == []


def test_kubeflows_controller_leaves_the_namespace_of_runs_alone(rendered) -> None:
    """It would write SeaweedFS into two ConfigMaps of ours; it goes by this label (release 2.17.0)."""
    labels = find(rendered("minio"), "Namespace", "cooper-rl").body["metadata"]["labels"]
    assert labels["pipelines.kubeflow.org/enabled"] == "false"


def test_a_run_may_use_trainjobs_and_nothing_more_than_that(rendered) -> None:
    role = find(rendered("minio"), "Role", "cooper-rl-trainjobs").body["rules"]
    cluster = find(rendered("minio"), "ClusterRole", "cooper-rl-trainingruntimes").body["rules"]
    assert {verb for rule in cluster for verb in rule["verbs"]} == {"get", "list"}
    granted = {(resource, verb) for rule in role for resource in rule["resources"] for verb in rule["verbs"]}
    assert {("trainjobs", verb) for verb in ("create", "get", "list", "watch", "delete")} <= granted
    assert {resource for resource, _ in granted} == {
        "trainjobs",
        "trainingruntimes",
        "pods",
        "events",
        "pods/log",
    }
    assert "*" not in json.dumps([role, cluster])
