"""Runs whose GPU tasks or TrainJob wait in a queue of Kueue, behind a pod that uses up its quota.

Needs Kueue with its `pod` integration, a profile with `[gpu]`, and the right to make a ClusterQueue.
"""

import time
from collections.abc import Generator

import pytest

from pipelines.profile import GpuPool
from tests.on_cluster.objects import make_pod, make_queue, on_gpus
from tests.on_cluster.site import STEPS, TRAINJOBS, Site, wait_for
from tests.on_cluster.test_jobs import store_secret, with_jobs

pytestmark = pytest.mark.cluster

GATE = "kueue.x-k8s.io/admission"
QUEUES = ("localqueues", "clusterqueues", "resourceflavors")


@pytest.fixture
def pool(site: Site) -> Generator[GpuPool]:
    """The profile's GPUs, in a queue of this session's own that lets one task work at a time."""
    if not site.knows("clusterqueues.kueue.x-k8s.io"):
        pytest.skip("no ClusterQueue in this cluster: install Kueue 0.15 or later (operations.md)")
    if site.profile.gpu is None:
        pytest.skip("the profile has no [gpu], so that no task of it waits in a queue")
    for made in make_queue(site.id, site.namespace, site.profile.gpu):
        site.kubectl("create", "--filename=-", given=made)
    yield site.profile.gpu.model_copy(update={"queue": site.id})
    for kind in QUEUES:  # each waits for what uses it
        place = ("--namespace", site.namespace) if kind == "localqueues" else ()
        site.kubectl(*place, "delete", f"{kind}.kueue.x-k8s.io", site.id, "--wait=false")


@pytest.fixture
def holder(site: Site, pool: GpuPool) -> Generator[str]:
    """The name of a pod that Kueue admitted and that uses up the quota."""
    name = f"{site.id}-holder"
    pulls = site.profile.image_pull_secrets
    pod = make_pod(name, site.profile.cpu_image, ["sleep", "3600"], pull_secrets=pulls)
    site.kubectl("--namespace", site.namespace, "create", "--filename=-", given=on_gpus(pod, pool))
    wait_for(lambda: phase_of(site, name) == "Running", minutes=5, what=f"pod {name} to be admitted")
    yield name
    remove(site, name)


def phase_of(site: Site, pod: str) -> str:
    return site.kubectl("--namespace", site.namespace, "get", "pod", pod, "--output=jsonpath={.status.phase}")


def remove(site: Site, pod: str) -> None:
    now = ("--ignore-not-found", "--grace-period=0", "--force")
    site.kubectl("--namespace", site.namespace, "delete", "pod", pod, *now)


def gated(site: Site, run_id: str) -> list[str]:
    """Pods of a run that Kueue has not admitted yet."""
    return [
        pod["metadata"]["name"]
        for pod in site.pods(run_id)
        if any(gate["name"] == GATE for gate in pod["spec"].get("schedulingGates", []))
    ]


def test_a_run_waits_while_the_quota_is_used_and_ends_well_when_it_is_free(
    site: Site, pool: GpuPool, holder: str
) -> None:
    queued = site.profile.model_copy(update={"gpu": pool})
    run_id = site.start(queued, run_key="queued")
    waiting = wait_for(lambda: gated(site, run_id), minutes=15, what="a task to wait in the queue")
    time.sleep(20)
    assert set(waiting) <= set(gated(site, run_id)), "admitted over the quota"
    remove(site, holder)
    wait_for(lambda: not set(waiting) & set(gated(site, run_id)), minutes=3, what="Kueue to admit the task")
    assert site.wait_for_end(run_id, minutes=40) == "SUCCEEDED", site.messages(run_id)


def test_a_trainjob_waits_while_the_quota_is_used_and_trains_when_it_is_free(
    site: Site, pool: GpuPool, holder: str
) -> None:
    if not site.knows(TRAINJOBS) or store_secret(site.profile) is None or pool.type != "nvidia.com/gpu":
        pytest.skip("needs Kubeflow Trainer, a secret that a TrainJob reads, and nvidia.com/gpu in [gpu]")
    run_key = "queued-job"
    profile = with_jobs(site.profile.model_copy(update={"gpu": None}), nodes=1, pool=pool)
    run_id = site.start(profile, run_key=run_key)
    (job,) = wait_for(lambda: site.jobs(run_key), minutes=20, what="the TrainJob")
    time.sleep(20)
    selector = ("--selector", f"jobset.sigs.k8s.io/jobset-name={job['metadata']['name']}")
    assert not site.get("pods", *selector), "admitted over the quota"
    remove(site, holder)
    assert site.wait_for_end(run_id, minutes=40) == "SUCCEEDED", site.messages(run_id)
    assert site.weights(run_key)["step"] == STEPS
