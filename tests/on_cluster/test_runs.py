"""A whole run on a cluster, and the same run with its training pod or its servers taken away."""

import time
from collections.abc import Callable

import pytest

from tests.on_cluster.site import STEPS, Site, wait_for

pytestmark = pytest.mark.cluster

KILL = """
import os, signal
for name in filter(str.isdigit, os.listdir("/proc")):
    try:
        command = open(f"/proc/{name}/cmdline").read()
    except OSError:
        continue
    if "kfp.dsl.executor_main" in command and int(name) not in (1, os.getpid()):
        os.kill(int(name), signal.SIGKILL)
"""
EVICTION = {"apiVersion": "policy/v1", "kind": "Eviction"}


def test_a_whole_run_leaves_its_checkpoints_and_says_how_it_ended(site: Site, undisturbed: str) -> None:
    assert site.weights("undisturbed")["step"] == STEPS
    (pod,) = site.pods(undisturbed, "summarise-run")
    assert '"has_succeeded": 1.0' in site.log(pod["metadata"]["name"])


def kill(site: Site, pod: str) -> None:
    namespace = ("--namespace", site.namespace)
    site.kubectl(*namespace, "exec", pod, "--container=main", "--", "python", "-c", KILL, check=False)


def delete(site: Site, pod: str) -> None:
    site.kubectl("--namespace", site.namespace, "delete", "pod", pod, "--force", "--grace-period=0")


def evict(site: Site, pod: str) -> None:
    path = f"/api/v1/namespaces/{site.namespace}/pods/{pod}/eviction"
    metadata = {"name": pod, "namespace": site.namespace}
    site.kubectl("create", "--raw", path, "--filename=-", given=EVICTION | {"metadata": metadata})


@pytest.mark.parametrize("end", [kill, delete, evict], ids=lambda end: end.__name__)
def test_a_training_pod_that_is_gone_changes_no_number(
    site: Site, undisturbed: str, end: Callable[[Site, str], None]
) -> None:
    run_key = end.__name__
    run_id = site.submit("--param", f"run_key={run_key}")
    pod = site.wait_for_step(run_id, 10, minutes=15)
    end(site, pod["name"])
    assert site.wait_for_end(run_id, minutes=30) == "SUCCEEDED", site.messages(run_id)
    # Argo may make the deleted pod again under its name.
    tries = {each["metadata"]["uid"] for each in site.pods(run_id, "train-cooper")}
    assert tries - {pod["uid"]}, "the task was not tried again"
    assert site.weights(run_key) == site.weights("undisturbed")


@pytest.mark.usefixtures("may_disturb")
def test_two_minutes_without_the_object_store_change_no_number(site: Site, undisturbed: str) -> None:
    scale = ("--namespace", site.storage_namespace, "scale", "statefulset/minio")
    (minio,) = site.get(
        "statefulsets", "--field-selector=metadata.name=minio", namespace=site.storage_namespace
    )
    run_id = site.submit("--param", "run_key=outage")
    site.wait_for_step(run_id, 10, minutes=15)
    site.kubectl(*scale, "--replicas=0")
    try:
        time.sleep(120)
    finally:
        site.kubectl(*scale, f"--replicas={minio['spec']['replicas']}")
    assert site.wait_for_end(run_id, minutes=40) == "SUCCEEDED", site.messages(run_id)
    assert site.weights("outage") == site.weights("undisturbed")


@pytest.mark.usefixtures("may_disturb")
def test_a_restart_of_the_api_server_ends_no_run(site: Site, undisturbed: str) -> None:
    run_id = site.submit("--param", "run_key=restart")
    site.wait_for_step(run_id, 10, minutes=15)
    deployment = ("--namespace", "kubeflow", "rollout")
    site.kubectl(*deployment, "restart", "deployment/ml-pipeline")
    site.kubectl(*deployment, "status", "deployment/ml-pipeline", "--timeout=170s")
    state = wait_for(lambda: site.wait_for_end(run_id, minutes=30), minutes=30, what="the server")
    assert state == "SUCCEEDED", site.messages(run_id)
    assert site.weights("restart") == site.weights("undisturbed")
