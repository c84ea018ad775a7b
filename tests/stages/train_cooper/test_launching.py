"""Co-training as a TrainJob: a stub cluster runs the posted command, which shares only the store with us."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cooper_rl.checkpoints.logs import METRICS
from cooper_rl.checkpoints.reference import open_checkpoint
from cooper_rl.cluster.launch import NUM_TAIL_LINES
from cooper_rl.cluster.trainjob import MOUNT
from cooper_rl.config.load import load, preset_names
from cooper_rl.config.root import Config
from cooper_rl.errors import ConfigError, LaunchError, StorageError
from cooper_rl.records.step_metrics import read_metrics
from cooper_rl.records.written import file_sha256
from cooper_rl.run.launching import StagedInputs, fetch_inputs, stage_inputs
from cooper_rl.schema.reports import CooperReport
from cooper_rl.stages import summarise_run, train_cooper
from cooper_rl.storage.local import LocalStore
from cooper_rl.storage.open import open_store
from tests.stages.conftest import SMALL, Files
from tests.stages.train_cooper.test_train_cooper import numbers
from tests.stand_ins.fixtures import Moto, bucket, gateway, s3_server
from tests.stand_ins.kubernetes_api import Cluster, Json, run_cluster
from tests.stand_ins.radosgw import Gateway

pytest.importorskip("kubeflow.trainer", reason="the SDK is not installed (extra trainjob)")

__all__ = ["bucket", "gateway", "s3_server"]

SECRET = "object-store-train"


class Kubelet:
    """Runs a job's one process on this machine, with the secret mounted and without our own keys."""

    def __init__(self, folder: Path, account: tuple[str, str]) -> None:
        self.mount = folder / "mounted"
        (self.mount / SECRET).mkdir(parents=True)
        for name, value in zip(("access_key", "secret_key"), account, strict=True):
            (self.mount / SECRET / name).write_text(value)

    def __call__(self, cluster: Cluster, job: Json) -> None:
        pod = cluster.set_pod(job, 0, "Running")
        trainer = job["spec"]["trainer"]
        program = Path(sys.executable).parent / trainer["command"][0]
        arguments = [text.replace("$$", "$").replace(MOUNT, str(self.mount)) for text in trainer["args"]]
        keys = {key: value for key, value in os.environ.items() if not key.startswith("AWS_")}
        process = subprocess.Popen(
            [program, *trainer["command"][1:], *arguments],
            env=keys,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert process.stdout is not None
        for line in process.stdout:
            cluster.write(pod, line.rstrip("\n"))
        is_good = process.wait() == 0
        cluster.set_pod(job, 0, "Succeeded" if is_good else "Failed")
        cluster.end(job, "Complete" if is_good else "Failed")


def overrides(server: Gateway | Moto, bucket: str, *more: str) -> list[str]:
    storage = {"uri": f"s3://{bucket}/checkpoints", "run_key": "job", "endpoint": server.endpoint}
    job = {
        "kind": "trainjob",
        "image": "cooper-rl-gpu:1",
        "storage_secret": SECRET,
        "gpus_per_node": 0,
        "poll_seconds": 0.1,
    }
    return [
        *SMALL,
        *(f"storage.{key}={value}" for key, value in storage.items()),
        *(f"launch.{key}={value}" for key, value in job.items()),
        *more,
    ]


def train(files: Files, folder: Path, options: list[str], **paths: Path) -> CooperReport:
    inputs = {"models": files.models, "verify_rm": files.verify_rm, "problems": files.problems} | paths
    return train_cooper.run(
        load("laptop", options), **inputs, checkpoint=folder / "checkpoint", report=folder / "report.json"
    )


@pytest.fixture
def in_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, s3_server: Gateway | Moto):
    account = s3_server.account
    kubelet = Kubelet(tmp_path, (account.access_key, account.secret_key))
    with run_cluster(kubelet) as cluster:
        path = str(cluster.write_kubeconfig(tmp_path / "kubeconfig"))
        monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", path)
        yield cluster


@pytest.mark.slow
def test_a_run_in_a_job_has_the_numbers_of_one_in_this_process_and_is_not_repeated(
    files: Files, tmp_path: Path, in_cluster: Cluster, s3_server: Gateway | Moto, bucket: str
) -> None:
    text = "cooper.steps=1"
    (tmp_path / "here").mkdir()
    here = [*SMALL, text, 'instruction="cost $$5"']
    train(files, tmp_path / "here", here, examples=files.examples)
    there = overrides(s3_server, bucket, text, 'instruction="cost $$5"')
    report = train(files, tmp_path, there, examples=files.examples)
    assert (report.first_step, report.last_step) == (1, 1)
    storage = load("laptop", there).storage
    with open_checkpoint(tmp_path / "checkpoint", storage, logs=(METRICS,)) as found:
        rows = [row.flat() for row in read_metrics(*found.log[METRICS])]
    of_job = [{key: row[key] for key in row if not key.startswith("seconds/")} for row in rows]
    assert of_job == numbers(tmp_path / "here" / "checkpoint")
    assert train(files, tmp_path, there, examples=files.examples).last_step == 1
    assert len(in_cluster.posted) == 1


@pytest.mark.slow
def test_what_is_wrong_in_the_job_is_said_here(
    files: Files, tmp_path: Path, in_cluster: Cluster, s3_server: Gateway | Moto, bucket: str
) -> None:
    """The secret lacks a key."""
    assert isinstance(in_cluster.kubelet, Kubelet)
    (in_cluster.kubelet.mount / SECRET / "access_key").unlink()
    with pytest.raises(LaunchError, match=r"failed.*\n(.*\n)*.*train-cooper: .*access_key") as caught:
        train(files, tmp_path, overrides(s3_server, bucket))
    assert len(str(caught.value).splitlines()) <= 1 + NUM_TAIL_LINES


def test_a_job_that_leaves_no_checkpoint_is_no_success(
    files: Files, tmp_path: Path, in_cluster: Cluster, s3_server: Gateway | Moto, bucket: str
) -> None:
    in_cluster.kubelet = lambda cluster, job: cluster.end(job, "Complete")
    with pytest.raises(LaunchError, match=r"no checkpoint of step 2; does launch\.image=cooper-rl-gpu:1"):
        train(files, tmp_path, overrides(s3_server, bucket))


def test_the_exit_task_deletes_the_jobs_of_every_arm(
    files: Files, tmp_path: Path, in_cluster: Cluster, s3_server: Gateway | Moto, bucket: str
) -> None:
    """It is told the run's name alone."""
    in_cluster.kubelet = lambda cluster, job: cluster.end(job, "Complete")
    for number, arm in enumerate([[], ["storage.arm=frozen"]]):
        (folder := tmp_path / str(number)).mkdir()
        with pytest.raises(LaunchError, match="no checkpoint"):
            train(files, folder, overrides(s3_server, bucket, *arm))
    for job in in_cluster.jobs.values():
        del job["status"]  # they go on
    (tmp_path / "status").write_text('{"state": "FAILED", "run": "run-1", "message": ""}')
    report = summarise_run.run(
        load("laptop", overrides(s3_server, bucket)),
        status=tmp_path / "status",
        summary=tmp_path / "summary.md",
        report=tmp_path / "end.json",
    )
    assert len(report.ended_jobs) == 2
    assert in_cluster.jobs == {}


def test_the_weights_that_a_job_continues_from_do_not_come_here(
    files: Files, tmp_path: Path, in_cluster: Cluster, s3_server: Gateway | Moto, bucket: str
) -> None:
    """They are gone from the store when the job is started, which only the job itself would find out."""
    options = overrides(s3_server, bucket, "cooper.steps=1")
    train(files, tmp_path / "first", [*options, "launch.kind=here"])
    storage = load("laptop", options).storage
    store = open_store(storage, f"{storage.run_uri()}/from-000001/step-000001")
    store.delete([key for key in store.keys("") if key.endswith(".safetensors")])
    in_cluster.kubelet = lambda cluster, job: cluster.end(job, "Complete")
    with pytest.raises(LaunchError, match="no checkpoint of step 2"):
        train(files, tmp_path / "second", options, start=tmp_path / "first" / "checkpoint")
    assert len(in_cluster.posted) == 1


def test_several_processes_without_deepspeed_are_refused_before_a_job_is_posted(
    files: Files, tmp_path: Path, in_cluster: Cluster, s3_server: Gateway | Moto, bucket: str
) -> None:
    options = overrides(s3_server, bucket, "launch.nodes=2", "launch.gpus_per_node=8")
    with pytest.raises(ConfigError, match=r"launch\.nodes x launch\.gpus_per_node: 16 processes, and dist"):
        train(files, tmp_path, options)
    assert in_cluster.asked == []


def test_one_of_several_processes_refuses_to_train_without_deepspeed(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(
        ConfigError, match=r"WORLD_SIZE: 2 processes, and distributed\.zero_stage=0 trains in one"
    ):
        train(files, tmp_path, SMALL)


@pytest.mark.parametrize("preset", preset_names())
def test_a_configuration_survives_the_way_into_a_job(preset: str) -> None:
    config = load(preset, ["models.policy=x"] if preset == "paper" else [])
    assert Config.model_validate_json(config.model_dump_json()) == config


def test_inputs_are_stored_once_and_come_out_as_they_were(files: Files, tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "store")
    inputs = {"models": files.models, "problems": files.problems, "replay": None}
    staged = stage_inputs(store, inputs)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "store").rglob("*") if path.is_file()}
    assert stage_inputs(store, inputs) == staged
    assert before == {path: path.stat().st_mtime_ns for path in before}
    found = fetch_inputs(store, staged, tmp_path / "there")
    assert set(found) == {"models", "problems"}
    assert found["problems"].name == "problems.jsonl"
    assert file_sha256(found["problems"]) == file_sha256(files.problems)
    assert (found["models"] / "models.json").read_text() == (files.models / "models.json").read_text()


def test_inputs_that_lead_out_of_their_folder_are_refused(tmp_path: Path) -> None:
    staged = StagedInputs(uri="x", paths={"problems": "../evil"}, sha256={"../evil": "0" * 64})
    with pytest.raises(StorageError, match=r"'\.\./evil' is refused"):
        fetch_inputs(LocalStore(tmp_path), staged, tmp_path / "there")
