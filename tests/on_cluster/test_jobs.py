"""Co-training as a TrainJob, of one node and of two, and its end when a person terminates the run.

Needs Kubeflow Trainer. The jobs train on CPUs, over gloo, and ask for no GPU.
"""

import json

import pytest

from pipelines.profile import GpuPool, Profile
from tests.on_cluster.site import STEPS, TRAINJOBS, Site, wait_for

pytestmark = pytest.mark.cluster

KEYS = {"access_key": "AWS_ACCESS_KEY_ID", "secret_key": "AWS_SECRET_ACCESS_KEY"}
"""A job mounts its secret as files, and has no other names for them."""


@pytest.fixture(autouse=True)
def needs_trainer(site: Site) -> None:
    if not site.knows(TRAINJOBS):
        pytest.skip("no TrainJob in this cluster: install Kubeflow Trainer 2.2 or later (operations.md)")
    if store_secret(site.profile) is None:
        pytest.skip(f"no secret of the profile has the keys {', '.join(KEYS)}, which a TrainJob reads")


def store_secret(profile: Profile) -> str | None:
    """The secret that opens the store of checkpoints."""
    return next((secret.name for secret in profile.secrets if KEYS.items() <= secret.env.items()), None)


def with_jobs(profile: Profile, *, nodes: int, pool: GpuPool | None = None) -> Profile:
    """The profile of a cluster whose co-training is a TrainJob, which gets GPUs and queue of a pool."""
    gpus = pool.count if pool else 0
    overrides = [
        "launch.kind=trainjob",
        f"launch.image={profile.gpu_image}",
        f"launch.storage_secret={store_secret(profile)}",
        f"launch.image_pull_secrets={list(profile.image_pull_secrets)}",
        f"launch.nodes={nodes}",
        f"launch.gpus_per_node={gpus}",
        f"launch.queue={json.dumps(pool and pool.queue)}",
        *(["distributed.zero_stage=1"] if nodes * max(1, gpus) > 1 else []),
    ]
    return profile.model_copy(update={"overrides": (*profile.overrides, *overrides)})


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_run_trains_as_a_trainjob(site: Site, nodes: int) -> None:
    run_key = f"job-{nodes}"
    run_id = site.start(with_jobs(site.profile, nodes=nodes), run_key=run_key)
    assert site.wait_for_end(run_id, minutes=40) == "SUCCEEDED", site.messages(run_id)
    (job,) = site.jobs(run_key)
    assert job["spec"]["trainer"]["numNodes"] == nodes
    complete = [each for each in job["status"]["conditions"] if each["type"] == "Complete"]
    assert [each["status"] for each in complete] == ["True"]
    (pod,) = site.pods(run_id, "train-cooper")
    assert "node-0: " in site.log(pod["metadata"]["name"]), "the task shows the first node's log"
    assert site.weights(run_key)["step"] == STEPS


def test_a_run_that_a_person_terminates_leaves_no_job_and_no_pod_of_it(site: Site) -> None:
    """The task has about a second to delete its job, whose pods then save and end."""
    run_key = "job-terminated"
    run_id = site.start(with_jobs(site.profile, nodes=1), "cooper.steps=2000", run_key=run_key)
    site.wait_for_step(run_id, 10, minutes=20)
    (job,) = site.jobs(run_key)
    site.server.client.terminate_run(run_id)
    wait_for(lambda: not site.jobs(run_key), minutes=2, what="the TrainJob to be deleted")
    selector = ("--selector", f"jobset.sigs.k8s.io/jobset-name={job['metadata']['name']}")
    wait_for(lambda: not site.get("pods", *selector), minutes=3, what="its pods to end")
    assert site.weights(run_key)["step"] >= 10
