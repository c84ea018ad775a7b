"""The shipped cluster profile of the pipelines fits what the manifests set up."""

import json
import tomllib
from pathlib import Path

import yaml

from manifests.check.references import read_expected
from manifests.check.resources import Resource
from tests.manifests.test_policies import is_allowed

ROOT = Path(__file__).parent.parent.parent
PROFILE = tomllib.loads((ROOT / "pipelines" / "profiles" / "cluster.toml").read_text(encoding="utf-8"))
OVERRIDES = dict(text.split("=", 1) for text in PROFILE["overrides"])


def find(resources: list[Resource], kind: str, name: str) -> Resource:
    return next(item for item in resources if (item.kind, item.name) == (kind, name))


def test_checkpoints_go_where_a_run_may_write(rendered) -> None:
    bucket, _, prefix = OVERRIDES["storage.uri"].removeprefix("s3://").partition("/")
    plan = json.loads((ROOT / "manifests" / "base" / "storage" / "buckets.json").read_text(encoding="utf-8"))
    expiry = {item["name"]: item["keep_replaced_days"] for item in plan["buckets"]}
    assert f"{prefix}/" in expiry[bucket]
    assert is_allowed("train", "s3:PutObject", f"{bucket}/{prefix}/run/step-1")
    launcher = find(rendered("minio"), "ConfigMap", "kfp-launcher")
    providers = yaml.safe_load(launcher.body["data"]["providers"])
    assert OVERRIDES["storage.endpoint"] == providers["s3"]["default"]["endpoint"]


def test_secrets_of_tasks_are_made(rendered) -> None:
    made = read_expected(ROOT / "manifests" / "overlays" / "minio").secrets
    for secret in PROFILE["secrets"]:
        assert set(secret["env"]) <= set(made[f"cooper-rl/{secret['name']}"])


def test_gpu_tasks_fit_the_queue_and_its_nodes(rendered) -> None:
    """One task within the quota of the smaller pool, on nodes whose taint it tolerates."""
    resources = rendered("external-s3")
    gpu = PROFILE["gpu"]
    queue = find(resources, "LocalQueue", gpu["queue"])
    assert queue.namespace == "cooper-rl"
    group = find(resources, "ClusterQueue", queue.spec["clusterQueue"]).spec["resourceGroups"][0]
    quota = {item["name"]: item["nominalQuota"] for item in group["flavors"][0]["resources"]}
    assert int(gpu["count"]) <= int(quota[gpu["type"]])
    assert int(gpu["cpu"]) <= int(quota["cpu"])
    assert int(gpu["memory"].removesuffix("Gi")) <= int(quota["memory"].removesuffix("Gi"))
    taints = find(resources, "ResourceFlavor", group["flavors"][0]["name"]).spec["nodeTaints"]
    tolerated = {(item["key"], item["operator"]) for item in gpu["tolerations"]}
    assert all((taint["key"], "Exists") in tolerated for taint in taints)
