"""The tools of the acceptance tests, without a cluster: these tests run with all others.

KFP's REST API and the object store are stand-ins, and kubectl is a script. Objects are held to the schemas
that `manifests/check` has.
"""

import io
import json
import socket
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from kfp_server_api.exceptions import ApiException

from cooper_rl.config.load import load
from manifests.check.resources import Resource
from manifests.check.schemas import check_schema
from pipelines.profile import GpuPool, Secret, load_profile
from pipelines.remote.server import HOST_ENV, Place, Server
from tests.on_cluster.objects import QUEUE_LABEL, make_pod, make_queue, on_gpus
from tests.on_cluster.site import REMOVE, STORE, Site
from tests.on_cluster.test_jobs import store_secret, with_jobs
from tests.small_run import ROOT
from tests.stand_ins.fixtures import make_client
from tests.stand_ins.kfp_api import Fault, KfpApi, run_kfp_api

ALONE = pytest.mark.parametrize("api", [None], indirect=True, ids=["alone"])
PROFILE = ROOT / "pipelines" / "profiles" / "cluster.toml"


@pytest.fixture(params=[None, "team"], ids=["alone", "profile"])
def api(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Generator[KfpApi]:
    """A server for everybody, and one for many users, where only the namespace `team` is mine."""
    monkeypatch.setenv("HOME", str(tmp_path))  # kfp reads and writes ~/.config/kfp
    monkeypatch.setattr("kfp.Client._LOCAL_KFP_CONTEXT", str(tmp_path / "context.json"))
    monkeypatch.delenv("KFP_TOKEN", raising=False)
    with run_kfp_api(KfpApi(namespace=request.param)) as running:
        monkeypatch.setenv(HOST_ENV, running.url)
        yield running


def site_on(api: KfpApi) -> Site:
    place = Place(api.url, api.namespace)
    return Site(Server(place), load_profile("cluster"), PROFILE, api.namespace or "kubeflow", "storage")


def test_runs_are_submitted_where_the_suite_looks_for_them(api: KfpApi) -> None:
    site = site_on(api)
    run_id = site.submit("--param", "run_key=undisturbed")
    assert site.runs == [run_id]
    (experiment,) = api.experiments.values()
    assert (experiment["display_name"], experiment["namespace"] or None) == (site.id, api.namespace)
    assert api.runs[run_id]["experiment_id"] == site.experiment_id() == experiment["experiment_id"]


def test_schedules_are_made_and_removed_where_the_suite_looks_for_them(api: KfpApi) -> None:
    site = site_on(api)
    cron = ("--cron", "0 * * * * *", "--name", site.id)
    site.pipelines("schedule", "apply", "retrain", "--iterations", "1", *cron)
    (schedule,) = api.recurring.values()
    assert (schedule["display_name"], schedule["experiment_id"]) == (site.id, site.experiment_id())
    site.pipelines("schedule", "pause", site.id)
    site.pipelines("schedule", "delete", site.id)
    assert not api.recurring


@ALONE
def test_another_profile_is_started_with_the_settings_of_the_session(api: KfpApi) -> None:
    site = site_on(api)
    run_id = site.start(with_jobs(site.profile, nodes=2), "cooper.steps=2000", run_key="job")
    given = api.runs[run_id]["runtime_config"]["parameters"]
    assert given["run_key"] == "job"
    assert given["overrides"] == [*site.overrides, "cooper.steps=2000"]


@ALONE
@pytest.mark.parametrize("nodes", [1, 2])
def test_a_profile_whose_co_training_is_a_trainjob_is_one_that_the_configuration_takes(
    api: KfpApi, nodes: int
) -> None:
    site = site_on(api)
    profile = with_jobs(site.profile, nodes=nodes)
    assert profile.starts_jobs
    config = load("laptop", [*profile.overrides, *site.overrides, "storage.run_key=job"])
    assert (config.launch.kind, config.launch.nodes, config.launch.processes_per_node) == (
        "trainjob",
        nodes,
        1,
    )
    assert config.launch.storage_secret == "object-store-train"
    assert config.distributed.zero_stage == nodes - 1
    assert config.launch.queue is None

    pool = GpuPool(count=2, queue="mine")
    config = load("laptop", [*with_jobs(site.profile, nodes=1, pool=pool).overrides, *site.overrides])
    assert (config.launch.queue, config.launch.processes_per_node, config.distributed.zero_stage) == (
        "mine",
        2,
        1,
    )


@ALONE
def test_a_secret_with_other_keys_is_none_that_a_job_can_read(api: KfpApi) -> None:
    profile = site_on(api).profile
    other = Secret(name="store", env={"id": "AWS_ACCESS_KEY_ID", "key": "AWS_SECRET_ACCESS_KEY"})
    assert store_secret(profile.model_copy(update={"secrets": (other,)})) is None


def problems_of(*objects: dict[str, Any]) -> list[str]:
    return [str(problem) for each in objects for problem in check_schema(Resource(each))]


def test_objects_that_the_suite_makes_fit_the_schemas_of_their_kinds() -> None:
    pool = load_profile("cluster").gpu
    assert pool is not None
    variables = [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "b", "key": "c"}}}]
    pod = make_pod("pod", "image:1", ["sleep", "1"], environment=variables, pull_secrets=["registry"])
    assert problems_of(pod) == []
    held = on_gpus(pod, pool)
    assert problems_of(held, *make_queue("mine", "team", pool)) == []
    assert held["metadata"]["labels"] == {QUEUE_LABEL: "cooper-rl"}


def test_a_queue_lets_one_task_of_the_pool_work_at_a_time_and_covers_what_tasks_ask_for() -> None:
    pool = GpuPool(type="example.com/gpu", count=8, node_selector={"example.com/pool": "training"})
    kind, queue, local = make_queue("mine", "team", pool)
    (group,) = queue["spec"]["resourceGroups"]
    quotas = {each["name"]: each["nominalQuota"] for each in group["flavors"][0]["resources"]}
    assert quotas["example.com/gpu"] == "8"
    assert kind["spec"] == {"nodeLabels": pool.node_selector}, "by which Kueue sends a TrainJob there"
    assert set(quotas) == set(group["coveredResources"]) >= {"cpu", "memory", "ephemeral-storage"}
    assert (local["metadata"]["namespace"], local["spec"]["clusterQueue"]) == ("team", "mine")


@pytest.fixture
def kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A script in kubectl's place; it says what stands in the file of the kind that it is asked for."""
    answers = tmp_path / "answers"
    answers.mkdir()
    script = tmp_path / "kubectl"
    script.write_text(
        f'#!/bin/sh\nfor word in "$@"; do [ -f "{answers}/$word" ] && exec cat "{answers}/$word"; done\n'
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return answers


@ALONE
def test_a_runs_artifacts_and_logs_are_known_where_the_manifests_keep_them(
    api: KfpApi, kubectl: Path
) -> None:
    site = site_on(api)
    (kubectl / "configmap").write_text("s3://mlpipeline/private-artifacts/team/v2/artifacts")
    workflows = {"items": [{"metadata": {"name": "end-to-end-abcde"}}]}
    (kubectl / "workflows.argoproj.io").write_text(json.dumps(workflows))
    artifacts = [
        "s3://mlpipeline/private-artifacts/team/v2/artifacts/end-to-end/0b1e/",
        "s3://mlpipeline/private-artifacts/team/v2/artifacts/retrain/0b1e/",
        "s3://mlpipeline/private-artifacts/team/v2/artifacts/experiment/0b1e/",
    ]
    logs = "s3://mlpipeline/private-artifacts/team/logs/end-to-end-abcde-"
    assert site.artifacts_of("0b1e") == [*artifacts, logs]
    (kubectl / "workflows.argoproj.io").write_text(json.dumps({"items": []}))
    assert site.artifacts_of("0b1e") == artifacts
    labels = {"workflows.argoproj.io/workflow": "end-to-end-abcde"}
    (kubectl / "pods").write_text(json.dumps({"items": [{"metadata": {"name": "pod", "labels": labels}}]}))
    assert len(site.pods("0b1e")) == 1
    (kubectl / "pods").write_text(json.dumps({"items": []}))
    assert site.artifacts_of("0b1e") == [*artifacts, logs], "seen while it was there"
    (kubectl / "configmap").write_text("")
    assert site.artifacts_of("0b1e") == [], "a Kubeflow whose artifacts are elsewhere"


@ALONE
@pytest.mark.parametrize("is_terminated", [False, True], ids=["running", "terminated"])
def test_a_run_that_is_removed_is_terminated_once(api: KfpApi, kubectl: Path, is_terminated: bool) -> None:
    site = site_on(api)
    (kubectl / "configmap").write_text("")
    run_id = site.submit("--param", "run_key=removed")
    if is_terminated:
        site.server.client.terminate_run(run_id)
        api.script = [{"state": "CANCELING"}, {"state": "CANCELING"}, {"state": "FAILED"}]
    site.remove(run_id)
    assert (site.runs, api.runs) == ([], {})
    assert api.count("POST", f"/runs/{run_id}:terminate") == 1


@ALONE
@pytest.mark.parametrize("status", [500, 404])
def test_a_server_that_fails_for_a_moment_ends_no_wait(api: KfpApi, status: int) -> None:
    site = site_on(api)
    run_id = site.submit()
    api.script = [{"state": "SUCCEEDED"}]
    api.faults = [Fault("GET", f"/runs/{run_id}", status)]
    if status == 404:
        with pytest.raises(ApiException):
            site.wait_for_end(run_id, minutes=1)
    else:
        assert site.wait_for_end(run_id, minutes=1) == "SUCCEEDED"
    assert api.faults[0].times == 0


@ALONE
def test_a_connection_that_breaks_ends_no_wait(api: KfpApi, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with a port-forward whose pod is gone, until the next one listens."""
    site = site_on(api)
    run_id = site.submit()
    api.script = [{"state": "SUCCEEDED"}]
    configuration = site.server.client._run_api.api_client.configuration
    monkeypatch.setattr(configuration, "host", "http://127.0.0.1:1")
    pauses: list[float] = []

    def come_back(seconds: float) -> None:
        pauses.append(seconds)
        configuration.host = api.url

    monkeypatch.setattr("tests.on_cluster.site.time.sleep", come_back)
    assert site.wait_for_end(run_id, minutes=1) == "SUCCEEDED"
    assert len(pauses) == 1


@ALONE
def test_kinds_that_a_cluster_has_are_told_from_those_that_it_lacks(api: KfpApi, kubectl: Path) -> None:
    site = site_on(api)
    (kubectl / "api-resources").write_text("trainjobs.trainer.kubeflow.org\n")
    ours = {"metadata": {"name": "ours"}, "spec": {"trainer": {"args": [f"{site.checkpoints} job-1"]}}}
    other = {"metadata": {"name": "other"}, "spec": {"trainer": {"args": ["s3://cooper-rl/checkpoints/run"]}}}
    (kubectl / "trainjobs.trainer.kubeflow.org").write_text(json.dumps({"items": [ours, other]}))
    assert site.knows("trainjobs.trainer.kubeflow.org")
    assert not site.knows("clusterqueues.kueue.x-k8s.io")
    assert site.jobs() == site.jobs("job-1") == [ours]
    assert site.jobs("job-2") == []


def test_a_script_waits_until_the_network_admits_its_pod() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        given = {"endpoint": f"http://127.0.0.1:{listener.getsockname()[1]}"}
        command = [sys.executable, "-c", STORE + "print(1)", json.dumps(given)]
        script = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        with pytest.raises(subprocess.TimeoutExpired):
            script.wait(timeout=5)
        listener.listen()
        shown, _ = script.communicate(timeout=60)
    assert (shown, script.returncode) == ("1\n", 0)


def test_only_what_lies_below_the_given_addresses_is_removed(s3_server, bucket: str) -> None:
    """The very script that a pod of the suite runs."""
    client = make_client(s3_server.port, s3_server.account)
    for key in ("runs/mine/a", "runs/mine/b/c", "runs/mine-too/a", "logs/abcde-1", "logs/abcdf-1"):
        client.put_object(bucket, key, io.BytesIO(b"x"), 1)
    given = {
        "endpoint": s3_server.endpoint,
        "uris": [f"s3://{bucket}/runs/mine/", f"s3://{bucket}/logs/abcde-"],
    }
    command = [sys.executable, "-c", STORE + REMOVE, json.dumps(given)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert json.loads(done.stdout) == 3
    left = [each.object_name for each in client.list_objects(bucket, recursive=True)]
    assert left == ["logs/abcdf-1", "runs/mine-too/a"]
