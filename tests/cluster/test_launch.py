"""TrainJobs against a stub of the Kubernetes API on a real socket; it holds them to the Trainer's models."""

import io
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack
from itertools import chain, repeat
from pathlib import Path
from threading import Event, Thread, current_thread, main_thread
from typing import Any

import pytest
import yaml

from cooper_rl.cluster import launch, leftovers, sdk
from cooper_rl.cluster.leftovers import end_jobs
from cooper_rl.cluster.trainjob import MOUNT, Program, job_name, kept_grace_period
from cooper_rl.config.infrastructure import LaunchConfig
from cooper_rl.config.load import load
from cooper_rl.errors import ConfigError, LaunchError, StoppedError
from cooper_rl.schema.runs import RunEndReport
from cooper_rl.stages import summarise_run
from tests.stand_ins.kubernetes_api import (
    CREATED,
    NAMESPACE,
    TRAINER,
    Cluster,
    Json,
    make_runtime,
    run_cluster,
)
from tests.stand_ins.serving import saying_nothing

pytest.importorskip("kubeflow.trainer", reason="the SDK is not installed (extra trainjob)")

ROOT = Path(__file__).parents[2]
RUN_URI = "s3://cooper-rl/checkpoints/monday"
PROGRAM = Program("some.module", ['{"price": "$5 and $(HOME)"}', "two"], grace_seconds=25, run_uri=RUN_URI)
Start = Callable[[Callable[[Cluster, Json], None]], Cluster]


def options(**changes: Any) -> LaunchConfig:
    values = {
        "kind": "trainjob",
        "image": "registry.lan/cooper-rl-gpu:1",
        "storage_secret": "object-store-train",
    }
    return LaunchConfig.model_validate(values | {"poll_seconds": 0.05, "retry_seconds": 0.3} | changes)


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Start]:
    """Starts a cluster, and makes it kubectl's."""
    with ExitStack() as stack:

        def begin(kubelet: Callable[[Cluster, Json], None]) -> Cluster:
            cluster = stack.enter_context(run_cluster(kubelet))
            monkeypatch.setenv("KUBECONFIG", str(cluster.write_kubeconfig(tmp_path / "kubeconfig")))
            # The client reads the variable when it is imported.
            monkeypatch.setattr(
                "kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", os.environ["KUBECONFIG"]
            )
            return cluster

        yield begin


def is_followed(cluster: Cluster) -> bool:
    """True once somebody has asked for the job's pods."""
    return any(path.endswith("/pods") for _, path in cluster.asked)


def succeed(cluster: Cluster, job: Json) -> None:
    pods = [cluster.set_pod(job, index, "Pending") for index in range(job["spec"]["trainer"]["numNodes"])]
    time.sleep(0.1)
    for index in range(len(pods)):
        cluster.set_pod(job, index, "Running")
    cluster.write(pods[0], "step 1", "", "step 2")
    time.sleep(0.2)
    cluster.write(pods[0], "step 3")
    for index in range(len(pods)):
        cluster.set_pod(job, index, "Succeeded")
    cluster.end(job, "Complete")


def fail(cluster: Cluster, job: Json) -> None:
    pods = [cluster.set_pod(job, index, "Running") for index in range(2)]
    cluster.write(pods[0], "waiting for the other")
    cluster.write(pods[1], *(f"line {number}" for number in range(100)), "CUDA out of memory")
    cluster.set_pod(job, 1, "Failed")
    cluster.end(job, "Failed")


def wait(cluster: Cluster, job: Json) -> None:
    cluster.set_pod(job, 0, "Running")


def run(
    config: LaunchConfig, program: Program = PROGRAM, *, is_stopped: Callable[[], bool] = lambda: False
) -> None:
    launch.run(config, program, is_stopped=is_stopped)


def test_a_job_of_two_nodes_is_posted_followed_and_its_log_is_ours(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    cluster = start(succeed)
    config = options(
        nodes=2, gpus_per_node=8, cpu=32, memory="400Gi", ephemeral_storage="220Gi",
        queue="cooper-rl", secrets=["certificates"],
        environment={"NCCL_DEBUG": "WARN"}, node_selector={"pool": "a"}, image_pull_secrets=["pull"],
    )  # fmt: skip
    run(config)
    (job,) = cluster.posted
    assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "cooper-rl"
    assert job["spec"]["runtimeRef"]["name"] == "torch-distributed"
    trainer = job["spec"]["trainer"]
    assert trainer["numNodes"] == 2
    assert trainer["image"] == "registry.lan/cooper-rl-gpu:1"
    assert trainer["command"] == [
        "torchrun", "--nproc-per-node=8", "--shutdown-timeout=25", "-m", "some.module",
    ]  # fmt: skip
    assert trainer["args"] == ['{"price": "$$$$5 and $$$$(HOME)"}', "two"]
    assert trainer["env"] == [{"name": "NCCL_DEBUG", "value": "WARN"}]
    resources = {"cpu": 32, "memory": "400Gi", "ephemeral-storage": "220Gi", "nvidia.com/gpu": 8}
    assert trainer["resourcesPerNode"]["limits"] == resources
    (patch,) = job["spec"]["runtimePatches"]
    (node,) = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    assert node["template"]["spec"]["template"]["metadata"]["labels"] == {"sidecar.istio.io/inject": "false"}
    pod = node["template"]["spec"]["template"]["spec"]
    assert "terminationGracePeriodSeconds" not in pod  # 30, as without it
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["nodeSelector"] == {"pool": "a"}
    assert pod["imagePullSecrets"] == [{"name": "pull"}]
    assert [item.get("secret", {}).get("secretName") for item in pod["volumes"]] == [
        None, None, "object-store-train", "certificates",
    ]  # fmt: skip
    mounts = [mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]]
    assert mounts == ["/dev/shm", "/tmp", f"{MOUNT}/object-store-train", f"{MOUNT}/certificates"]
    said = [record.getMessage() for record in caplog.records]
    assert [line for line in said if line.startswith("node-0: ")] == [
        "node-0: step 1", "node-0: step 2", "node-0: step 3",
    ]  # fmt: skip
    assert any(line.endswith(": Running, node-0 Running, node-1 Running") for line in said)


def test_a_log_that_is_cut_is_read_on_without_repeating_lines(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    cluster = start(succeed)
    cluster.cut_logs = 1
    run(options())
    lines = [text for text in (r.getMessage() for r in caplog.records) if text.startswith("node-0: ")]
    assert lines == ["node-0: step 1", "node-0: step 2", "node-0: step 3"]


def test_a_failed_job_is_an_error_with_the_failed_pods_last_lines(start: Start) -> None:
    start(fail)
    with pytest.raises(
        LaunchError, match=r"pod .*-node-0-1 \(node-1\) failed\. Mend .* start again"
    ) as caught:
        run(options(nodes=2))
    lines = str(caught.value).splitlines()
    assert lines[-1].strip() == "CUDA out of memory"
    assert len(lines) == 1 + launch.NUM_TAIL_LINES


def test_a_job_that_fails_without_a_pod_is_an_error_with_its_events(start: Start) -> None:
    def refuse(cluster: Cluster, job: Json) -> None:
        name = job["metadata"]["name"]
        cluster.events.append(
            {
                "metadata": {"name": "e", "namespace": NAMESPACE},
                "involvedObject": {"kind": "JobSet", "name": name},
                "firstTimestamp": "2026-11-21T12:00:00Z",
                "reason": "FailedCreate",
                "message": "exceeded quota: cooper-rl",
            }
        )
        cluster.end(job, "Failed")

    start(refuse)
    with pytest.raises(LaunchError, match=r"no pod failed.*\n    FailedCreate: exceeded quota: cooper-rl"):
        run(options())


def test_a_job_whose_container_failed_again_and_again_is_an_error_with_the_log_that_was_shown(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """The Trainer's own runtime starts a container again; after the last try the Job removes its pods."""
    caplog.set_level(logging.INFO)

    def shown() -> list[str]:
        return [text for text in (r.getMessage() for r in caplog.records) if text.startswith("node-0: ")]

    def fail_twice(cluster: Cluster, job: Json) -> None:
        pod = cluster.set_pod(job, 0, "Running")
        for number, attempt in enumerate(("first", "second"), start=1):
            cluster.restart(pod)
            cluster.write(pod, f"{attempt} try", "no module named 'deepspeed'")
            deadline = time.monotonic() + 20
            while len(shown()) < 2 * number and time.monotonic() < deadline:
                time.sleep(0.02)
        cluster.remove_pods()
        cluster.end(job, "Failed")

    start(fail_twice)
    with pytest.raises(LaunchError, match=r"no failed pod is left.*\n    first try\n") as caught:
        run(options())
    assert str(caught.value).splitlines()[-2:] == ["    second try", "    no module named 'deepspeed'"]
    assert [line for line in shown() if line.endswith(" try")] == ["node-0: first try", "node-0: second try"]


def test_a_stop_deletes_the_job(start: Start) -> None:
    cluster = start(wait)
    with pytest.raises(StoppedError, match=r"SIGTERM: TrainJob cooper-rl/.* is deleted and saves what it"):
        run(options(), is_stopped=lambda: bool(cluster.pods))
    assert cluster.deleted == [job_name(options(), PROGRAM)]


def test_a_task_that_is_told_to_end_before_creates_no_job(start: Start) -> None:
    cluster = start(wait)
    with pytest.raises(StoppedError):
        run(options(), is_stopped=lambda: True)
    assert (cluster.posted, cluster.jobs) == ([], {})


def test_a_job_that_was_created_during_the_stop_is_deleted(start: Start) -> None:
    cluster = start(wait)
    with pytest.raises(StoppedError):
        run(options(), is_stopped=lambda: bool(cluster.posted))
    assert cluster.deleted == [job_name(options(), PROGRAM)]
    # Nothing is asked in between.
    asked = [method for method, _ in cluster.asked]
    assert asked[asked.index("POST") + 1] == "DELETE"


def test_a_stop_deletes_the_job_while_the_api_server_owes_an_answer(start: Start) -> None:
    """A task that is ended has a second, and a list of pods can take longer."""
    cluster = start(wait)
    stopped, was_first = Event(), []

    def stop_between_question_and_answer() -> None:
        with cluster.changed:
            cluster.changed.wait_for(lambda: cluster.pods, timeout=10)
        cluster.lists_pods.clear()
        asked = len(cluster.asked)
        while not any(path.endswith("/pods") for _, path in cluster.asked[asked:]):
            time.sleep(0.01)
        stopped.set()
        with cluster.changed:
            was_first.append(cluster.changed.wait_for(lambda: bool(cluster.deleted), timeout=10))
        cluster.lists_pods.set()

    thread = Thread(target=stop_between_question_and_answer)
    thread.start()
    with pytest.raises(StoppedError, match=r"SIGTERM: TrainJob cooper-rl/.* is deleted and saves what it"):
        run(options(), is_stopped=stopped.is_set)
    thread.join()
    assert was_first == [True]
    assert cluster.deleted == [job_name(options(), PROGRAM)]


def test_control_c_deletes_the_job(start: Start, tmp_path: Path) -> None:
    cluster = start(wait)
    code = (
        "from tests.cluster.test_launch import options, run\n"
        "import sys\n"
        "try:\n    run(options())\n"
        "except KeyboardInterrupt:\n    sys.exit(130)\n"
    )
    environment = os.environ | {"KUBECONFIG": str(tmp_path / "kubeconfig")}
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, env=environment) as process:
        try:
            deadline = time.monotonic() + 120
            while not cluster.pods and time.monotonic() < deadline:
                time.sleep(0.05)
            assert cluster.pods, "the program asked for no job"
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=60) == 130
        finally:
            process.kill()
    assert len(cluster.deleted) == 1


class Interrupted(io.RawIOBase):
    """Ctrl-C comes while it is closed."""

    def close(self) -> None:
        signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("is_another", [False, True], ids=["dropped", "another error"])
def test_control_c_that_python_drops_deletes_the_job(start: Start, is_another: bool) -> None:
    """Python clears what is raised while an object of `io` is finalised, such as an answer of HTTP. In a
    wait for a lock, another error comes out."""
    cluster = start(wait)
    num_dropped, deadline = 0, time.monotonic() + 30

    def press() -> bool:
        nonlocal num_dropped
        if cluster.pods and not num_dropped and current_thread() is main_thread():
            Interrupted()
            num_dropped += 1  # and no KeyboardInterrupt came out of the line above
            if is_another:
                raise RuntimeError("release unlocked lock")
        return time.monotonic() > deadline

    with pytest.raises(KeyboardInterrupt):
        run(options(), is_stopped=press)
    assert num_dropped == 1
    assert cluster.deleted == [job_name(options(), PROGRAM)]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_job_that_cannot_be_deleted_is_left_to_the_user(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = start(wait)
    name = job_name(options(), PROGRAM)
    cluster.refusals["DELETE", name] = (500, "etcd is away")
    with pytest.raises(StoppedError):
        run(options(), is_stopped=lambda: bool(cluster.pods))
    assert f"remove it by hand: kubectl --namespace cooper-rl delete trainjob {name}" in caplog.text


def leave_a_job(cluster: Cluster, program: Program) -> str:
    """A job that its task could not delete; returns its name."""
    name = job_name(options(), program)
    cluster.refusals["DELETE", name] = (500, "etcd is away")
    with pytest.raises(StoppedError):
        run(options(), program, is_stopped=lambda: name in cluster.jobs and bool(cluster.pods))
    cluster.refusals.clear()
    return name


def summarise(folder: Path, run_key: str) -> tuple[RunEndReport, str]:
    """The exit task's report and summary of a run with TrainJobs."""
    status = folder / "status"
    status.write_text('{"state": "FAILED", "run": "run-1", "message": ""}')
    config = load("laptop", [f"storage.uri={folder / 'store'}", f"storage.run_key={run_key}"])
    config = config.model_copy(update={"launch": options()})
    summary = folder / "summary.md"
    report = summarise_run.run(config, status=status, summary=summary, report=folder / "report.json")
    return report, summary.read_text()


def test_the_exit_task_deletes_the_jobs_that_its_run_left(start: Start, tmp_path: Path) -> None:
    cluster = start(wait)
    mine, other = (PROGRAM._replace(run_uri=f"{tmp_path / 'store'}/{key}") for key in ("monday", "tuesday"))
    ended = leave_a_job(cluster, mine._replace(module="some.first"))
    cluster.end(cluster.jobs[ended], "Complete")
    name, kept = leave_a_job(cluster, mine), leave_a_job(cluster, other._replace(module="some.other"))
    report, summary = summarise(tmp_path, "monday")
    assert report.ended_jobs == [f"{NAMESPACE}/{name}"]
    assert f"TrainJob `{NAMESPACE}/{name}` went on after the run's end and was deleted." in summary
    assert set(cluster.jobs) == {ended, kept}


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_the_exit_task_says_that_a_job_may_go_on_where_it_cannot_ask(
    start: Start, tmp_path: Path, method: str
) -> None:
    cluster = start(wait)
    name = leave_a_job(cluster, PROGRAM._replace(run_uri=f"{tmp_path / 'store'}/monday"))
    cluster.refusals[method, "/trainjobs" if method == "GET" else name] = (403, "no rights")
    report, summary = summarise(tmp_path, "monday")
    assert report.ended_jobs == []
    assert "A TrainJob of this run may go on: " in summary
    assert "no rights" in summary
    assert set(cluster.jobs) == {name}


def test_the_exit_task_names_the_jobs_that_it_deleted_and_the_one_that_it_could_not(
    start: Start, tmp_path: Path
) -> None:
    cluster = start(wait)
    mine = PROGRAM._replace(run_uri=f"{tmp_path / 'store'}/monday")
    names = [leave_a_job(cluster, mine._replace(module=f"some.module_{number}")) for number in range(3)]
    cluster.refusals["DELETE", names[1]] = (403, "no rights")
    report, summary = summarise(tmp_path, "monday")
    assert report.ended_jobs == [f"{NAMESPACE}/{names[0]}", f"{NAMESPACE}/{names[2]}"]
    assert summary.count("went on after the run's end and was deleted.") == 2
    assert f"remove it by hand: kubectl --namespace cooper-rl delete trainjob {names[1]}" in summary
    assert set(cluster.jobs) == {names[1]}


def test_the_exit_task_takes_a_job_that_is_being_deleted_for_one_that_ends(
    start: Start, tmp_path: Path
) -> None:
    cluster = start(wait)
    name = leave_a_job(cluster, PROGRAM._replace(run_uri=f"{tmp_path / 'store'}/monday"))
    cluster.jobs[name]["metadata"] |= {"deletionTimestamp": CREATED, "finalizers": ["example.com/wait"]}
    report, summary = summarise(tmp_path, "monday")
    assert (report.ended_jobs, cluster.deleted) == ([], [])
    assert "TrainJob" not in summary


def test_without_the_trainer_no_job_can_be_left(
    start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = start(wait)
    cluster.has_trainer = False
    report, summary = summarise(tmp_path, "monday")
    assert (report.ended_jobs, len(cluster.asked)) == ([], 1)
    assert "TrainJob" not in summary
    assert "knows no such kind of object; install Kubeflow Trainer 2.2 or later" in caplog.text


def test_the_exit_task_waits_for_an_api_server_that_comes_back(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leftovers, "SECONDS_BETWEEN_TRIES", 0.05)
    cluster = start(wait)
    name = leave_a_job(cluster, PROGRAM._replace(run_uri=f"{tmp_path / 'store'}/monday"))
    cluster.refusals["GET", "/trainjobs"] = (503, "starting")
    asked = len(cluster.asked)

    def come_back() -> None:
        while len(cluster.asked) < asked + 3:
            time.sleep(0.01)
        cluster.refusals.clear()

    thread = Thread(target=come_back)
    thread.start()
    report, _ = summarise(tmp_path, "monday")
    thread.join()
    assert report.ended_jobs == [f"{NAMESPACE}/{name}"]


@pytest.mark.usefixtures("impatient")
def test_an_api_server_that_says_nothing_does_not_hold_up_the_exit_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leftovers, "SILENCE_SECONDS", 0.2)
    monkeypatch.setattr(leftovers, "RETRY_SECONDS", 0.5)
    monkeypatch.setattr(leftovers, "SECONDS_BETWEEN_TRIES", 0.1)
    with saying_nothing() as url:
        use_kubeconfig(monkeypatch, tmp_path / "kubeconfig", kubeconfig_of(url))
        started = time.monotonic()
        _, summary = summarise(tmp_path, "monday")
    assert time.monotonic() - started < 5
    assert (
        f"A TrainJob of this run may go on: the TrainJobs of here cannot be listed: the API server {url}"
        in (summary)
    )


@pytest.mark.parametrize("text", ["a: [b", "just text"], ids=["no YAML", "no mapping"])
def test_a_kubeconfig_that_cannot_be_read_costs_no_summary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    use_kubeconfig(monkeypatch, tmp_path / "kubeconfig", text)
    _, summary = summarise(tmp_path, "monday")
    assert "may go on: launch.kind=trainjob: the way to a cluster cannot be read (" in summary
    with pytest.raises(LaunchError, match=r"cannot be read \(.*mend the file that KUBECONFIG names"):
        run(options())


def use_kubeconfig(monkeypatch: pytest.MonkeyPatch, path: Path, text: str) -> None:
    path.write_text(text)
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(path))


def kubeconfig_of(url: str) -> str:
    """With the namespace `here`."""
    context = {"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "here"}}
    config = {
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [context],
        "current-context": "c",
    }
    return yaml.safe_dump(config)


def test_a_job_that_is_there_already_is_followed_and_one_that_ended_is_replaced(start: Start) -> None:
    cluster, given_up = start(wait), threading.Event()
    with pytest.raises(LaunchError, match=r"503, starting"):
        run(
            options(),
            is_stopped=lambda: bool(not given_up.is_set() and is_followed(cluster) and hide(cluster)),
        )
    given_up.set()  # the thread that follows the log may ask once more
    cluster.refusals.clear()
    (job,) = cluster.jobs.values()
    cluster.set_pod(job, 0, "Succeeded")
    cluster.end(job, "Complete")
    assert len(cluster.posted) == 1
    cluster.kubelet = succeed
    run(options())  # the first one has ended
    assert (len(cluster.posted), len(cluster.deleted)) == (2, 1)
    (job,) = cluster.jobs.values()
    del job["status"]
    cluster.end(job, "Complete")
    job["status"]["conditions"][0]["type"] = "Suspended"
    stops = chain([False, False], repeat(True))
    with pytest.raises(StoppedError):
        run(options(), is_stopped=lambda: next(stops))
    assert len(cluster.posted) == 2


def hide(cluster: Cluster) -> bool:
    """From now on, the job cannot be read."""
    cluster.refusals["GET", next(iter(cluster.jobs))] = (503, "starting")
    return False


def test_a_server_that_stays_away_while_a_job_is_followed_is_given_up_and_the_job_stays(start: Start) -> None:
    cluster = start(wait)
    with pytest.raises(LaunchError, match=r"503, starting; the job goes on: start again .* to follow it"):
        run(options(), is_stopped=lambda: bool(is_followed(cluster) and hide(cluster)))
    assert cluster.deleted == []


def test_a_job_that_somebody_deletes_is_named(start: Start) -> None:
    cluster = start(wait)
    with pytest.raises(LaunchError, match=r"is gone: somebody deleted it; start again"):
        run(options(), is_stopped=lambda: bool(is_followed(cluster) and cluster.jobs.clear()))


@pytest.mark.parametrize(
    ("method", "end", "what"),
    [
        ("POST", "/trainjobs", "cannot be created"),
        ("GET", "/pods", "cannot be read"),
        ("GET", "/torch-distributed", r"launch\.runtime=torch-distributed cannot be read"),
    ],
)
def test_missing_rights_are_one_error_that_names_the_roles(
    start: Start, method: str, end: str, what: str
) -> None:
    cluster = start(wait)
    cluster.refusals[method, end] = (403, 'User "x" cannot do this')
    with pytest.raises(LaunchError, match=rf'{what}: User "x" cannot do this; allow it .*rbac\.yaml'):
        run(options())


def test_a_token_that_is_not_accepted_is_one_error_that_says_so(start: Start) -> None:
    cluster = start(wait)
    cluster.refusals["GET", job_name(options(), PROGRAM)] = (401, "Unauthorized")
    with pytest.raises(LaunchError, match=r"does not accept this process's token \(Unauthorized\), .*log in"):
        run(options())


def test_a_cluster_without_the_trainer_is_told_to_install_it(start: Start) -> None:
    """At once: asking again would not install it."""
    cluster = start(wait)
    cluster.has_trainer = False
    with pytest.raises(LaunchError, match=r"knows no such kind of object; install Kubeflow Trainer 2\.2"):
        run(options())
    assert len(cluster.asked) == 1


@pytest.mark.parametrize("status", [504, 503, 500, 429, 0])
def test_a_job_that_was_created_without_an_answer_is_followed(
    start: Start, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    """As through a proxy that gives up before the API server does."""
    caplog.set_level(logging.INFO)
    cluster = start(succeed)
    cluster.lost_answers = [status]
    run(options())
    assert (len(cluster.posted), cluster.deleted) == (1, [])
    assert "node-0: step 3" in caplog.messages


@pytest.mark.parametrize("status", [503, 429, 409])
def test_a_creation_that_failed_is_tried_again(start: Start, status: int) -> None:
    """Kubernetes says 409 too where a quota was changed by another request."""
    cluster = start(succeed)
    cluster.refusals["POST", "/trainjobs"] = (status, "try again")

    def recover() -> bool:
        if ("POST", JOBS) in cluster.asked:
            cluster.refusals.clear()
        return False

    run(options(), is_stopped=recover)
    assert len(cluster.posted) == 1
    assert cluster.asked.count(("POST", JOBS)) == 2


JOBS = f"{TRAINER}/namespaces/{NAMESPACE}/trainjobs"


@pytest.mark.parametrize("is_ours", [True, False])
def test_a_job_that_somebody_made_meanwhile_is_followed_if_it_is_this_runs(
    start: Start, is_ours: bool
) -> None:
    cluster = start(succeed)
    run(options())
    ((name, job),) = cluster.jobs.items()
    cluster.jobs.clear()
    cluster.asked.clear()
    if not is_ours:
        job["metadata"]["labels"] = {"app.kubernetes.io/part-of": "another"}

    def appear() -> bool:
        if any(path.endswith("/torch-distributed") for _, path in cluster.asked):
            cluster.jobs.setdefault(name, job)
        return False

    if is_ours:
        run(options(), is_stopped=appear)
    else:
        with pytest.raises(LaunchError, match=NOT_OURS):
            run(options(), is_stopped=appear)
    assert ("POST", JOBS) in cluster.asked
    assert (len(cluster.posted), cluster.deleted) == (1, [])


NOT_OURS = (
    r"TrainJob cooper-rl/\S+ is there already and is not this run's: it has not the labels "
    r"app\.kubernetes\.io/part-of=cooper-rl, cooper-rl\.io/run=\w{12}; rename or delete it"
)


@pytest.mark.parametrize("has_ended", [True, False])
@pytest.mark.parametrize(
    "labels", [None, {"app.kubernetes.io/part-of": "cooper-rl", "cooper-rl.io/run": "x"}]
)
def test_somebody_elses_job_of_the_same_name_is_neither_replaced_nor_deleted(
    start: Start, has_ended: bool, labels: Json | None
) -> None:
    cluster = start(succeed)
    run(options())
    (job,) = cluster.jobs.values()
    job["metadata"]["labels"] = labels or {}
    del job["spec"]["runtimePatches"]
    if not has_ended:
        del job["status"]
    with pytest.raises(LaunchError, match=NOT_OURS):
        run(options())
    assert cluster.deleted == []


@pytest.mark.parametrize(
    ("refusal", "status", "goes_on"),
    [
        (
            ("POST", "/trainjobs"),
            503,
            "; it may have been created all the same, and goes on then: start again",
        ),
        (("POST", "/trainjobs"), 422, ""),
        (("POST", "/trainjobs"), 409, ""),
        (("GET", "/torch-distributed"), 503, ""),
        (("GET", "/pods"), 403, "; the job goes on: start again with the same arguments to follow it"),
        (("GET", "/pods"), 401, "; the job goes on: start again with the same arguments to follow it"),
    ],
)
def test_an_error_says_that_the_job_goes_on_only_where_it_does(
    start: Start, refusal: tuple[str, str], status: int, goes_on: str
) -> None:
    cluster = start(wait)
    cluster.refusals[refusal] = (status, "no")
    with pytest.raises(LaunchError) as caught:
        run(options())
    assert goes_on in str(caught.value)
    assert ("goes on" in str(caught.value)) == bool(goes_on)
    assert bool(cluster.jobs) == goes_on.startswith("; the job")


def test_a_job_that_cannot_be_looked_at_after_it_was_created_goes_on(start: Start) -> None:
    cluster = start(wait)
    with pytest.raises(LaunchError, match=r"cannot be read: .* 503, starting; the job goes on: start again"):
        run(options(), is_stopped=lambda: bool(cluster.jobs and hide(cluster)))
    assert (len(cluster.jobs), cluster.deleted) == (1, [])


def test_a_runtime_that_is_deleted_while_its_job_runs_is_no_deleted_job(start: Start) -> None:
    cluster = start(wait)
    with pytest.raises(LaunchError, match=r"torch-distributed not found; the job goes on: start again"):
        run(options(), is_stopped=lambda: bool(is_followed(cluster) and cluster.runtimes.clear()))


def test_a_job_that_the_server_refuses_is_one_error_with_its_words(start: Start) -> None:
    cluster = start(wait)
    cluster.refusals["POST", "/trainjobs"] = (422, "spec.trainer.image:\n Invalid value\x1b[2J")
    with pytest.raises(
        LaunchError, match=r"the API server says 422, spec\.trainer\.image: Invalid value\ufffd\[2J$"
    ):
        run(options())


def test_a_server_that_is_not_there_is_one_error_with_its_address(start: Start) -> None:
    cluster = start(wait)
    cluster.shutdown()
    cluster.server_close()
    with pytest.raises(LaunchError, match=r"the API server http://127\.0\.0\.1:\d+ does not answer"):
        run(options())


@pytest.mark.usefixtures("impatient")
def test_a_server_that_takes_connections_and_says_nothing_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The client of Kubernetes would wait for ever."""
    monkeypatch.setattr(sdk, "SILENCE_SECONDS", 0.3)
    with saying_nothing() as url:
        use_kubeconfig(monkeypatch, tmp_path / "kubeconfig", kubeconfig_of(url))
        started = time.monotonic()
        with pytest.raises(LaunchError, match=rf"TrainJob here/\S+ cannot be read: the API server {url}"):
            run(options())
    assert time.monotonic() - started < 5
    assert f"{url}: no good answer for 0 s; waiting (two tries of 0.3 s)" in caplog.messages


def test_a_process_without_any_cluster_is_told_what_to_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "nothing")
    )
    with pytest.raises(LaunchError, match=r"no cluster to start it on .*; set KUBECONFIG"):
        run(options())


def test_an_unknown_runtime_and_one_of_another_framework_are_refused(start: Start) -> None:
    cluster = start(wait)
    with pytest.raises(LaunchError, match=r"launch\.runtime=gone: neither a TrainingRuntime in cooper-rl"):
        run(options(runtime="gone"))
    cluster.runtimes["mpi"] = make_runtime("mpi", "deepspeed")
    with pytest.raises(LaunchError, match=r"launch\.runtime=mpi is made for deepspeed, not torchrun"):
        run(options(runtime="mpi"))


def test_a_trainer_that_drops_what_the_job_needs_is_named_and_the_job_removed(start: Start) -> None:
    cluster = start(wait)
    cluster.is_old = True
    with pytest.raises(LaunchError, match=r"knows no runtimePatches, .* install Trainer 2\.2 or later"):
        run(options())
    assert cluster.deleted == [job_name(options(), PROGRAM)]


LONG = PROGRAM._replace(grace_seconds=600)


def forget_grace_period(job: Json) -> None:
    (patch,) = job["spec"]["runtimePatches"]
    (node,) = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    del node["template"]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]


def test_a_long_grace_period_is_asked_for(start: Start) -> None:
    cluster = start(succeed)
    run(options(queue="cooper-rl"), LONG)
    (job,) = cluster.posted
    assert kept_grace_period(job) == 605


def test_a_kueue_that_takes_the_grace_period_away_is_named_and_the_job_removed(start: Start) -> None:
    """Kueue 0.19.2, which speaks Trainer 2.2, when it lets a job of Trainer 2.3 go: its pods are refused."""
    cluster = start(lambda cluster, job: forget_grace_period(job))
    with pytest.raises(LaunchError, match=r"grace period of 605 s is gone.* storage\.grace_seconds=25"):
        run(options(queue="cooper-rl"), LONG)
    assert cluster.deleted == [job_name(options(queue="cooper-rl"), LONG)]


def test_a_job_that_is_there_already_is_looked_at_too(start: Start) -> None:
    """Of a start that ended before it could."""
    cluster = start(wait)
    cluster.refusals["DELETE", job_name(options(), PROGRAM)] = (503, "away")
    with pytest.raises(StoppedError):
        run(options(), is_stopped=lambda: bool(cluster.pods))
    cluster.refusals.clear()
    (job,) = cluster.jobs.values()
    del job["spec"]["runtimePatches"]
    with pytest.raises(LaunchError, match=r"knows no runtimePatches"):
        run(options())
    assert cluster.deleted == [job_name(options(), PROGRAM)]


def test_a_stop_is_noticed_between_two_looks_at_the_job(start: Start) -> None:
    """A pipeline task that is ended has about a second to delete its job."""
    cluster = start(wait)
    began = time.monotonic()
    with pytest.raises(StoppedError):
        run(options(poll_seconds=60.0), is_stopped=lambda: bool(cluster.pods))
    assert time.monotonic() - began < 20
    assert cluster.deleted == [job_name(options(poll_seconds=60.0), PROGRAM)]


def test_an_ended_job_that_does_not_go_away_is_named(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = start(succeed)
    run(options())
    monkeypatch.setattr(launch, "SECONDS_TO_REPLACE", 0.2)
    cluster.refusals["DELETE", job_name(options(), PROGRAM)] = (200, "finalizers are waited for")
    with pytest.raises(LaunchError, match=r"ended and does not go away; delete it by hand"):
        run(options())


def test_a_missing_sdk_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kubeflow.trainer", None)
    with pytest.raises(ConfigError, match=r"pip install '\.\[trainjob\]'"):
        run(options())


def test_everything_that_is_asked_is_allowed_by_the_roles_in_the_manifests(start: Start) -> None:
    """Verbs and resources of a run that fails, is replaced and is stopped, against RBAC."""
    cluster = start(fail)
    with pytest.raises(LaunchError):
        run(options(nodes=2))
    cluster.kubelet = wait
    with pytest.raises(StoppedError):
        run(options(nodes=2), is_stopped=lambda: len(cluster.posted) == 2)
    end_jobs(options(), RUN_URI)
    rules = [
        rule
        for role in yaml.safe_load_all((ROOT / launch_rbac()).read_text())
        for rule in role.get("rules", [])
    ]
    allowed = {(verb, resource) for rule in rules for verb in rule["verbs"] for resource in rule["resources"]}
    assert {request(method, path) for method, path in cluster.asked} <= allowed


def launch_rbac() -> str:
    from cooper_rl.cluster.sdk import RBAC

    return RBAC


def request(method: str, path: str) -> tuple[str, str]:
    """Kubernetes' verb and resource."""
    if path.endswith("/log"):
        return "get", "pods/log"
    parts = path.removeprefix(TRAINER).removeprefix("/api/v1").removeprefix(f"/namespaces/{NAMESPACE}")
    resource, _, name = parts.strip("/").partition("/")
    verbs = {"GET": "get" if name else "list", "POST": "create", "DELETE": "delete"}
    return verbs[method], resource


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["launch.image=x"], r"launch\.kind=trainjob needs launch\.storage_secret"),
        ([], r"launch\.kind=trainjob needs launch\.image and launch\.storage_secret"),
        (
            ["launch.image=x", "launch.storage_secret=s"],
            r"needs storage\.uri=s3://bucket/prefix \(found None\)",
        ),
        (
            ["launch.image=x", "launch.storage_secret=s", "storage.uri=/data"],
            r"needs storage\.uri=s3://bucket/prefix \(found /data\)",
        ),
    ],
)
def test_a_job_that_is_not_described_is_refused_with_the_key(overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load("laptop", ["launch.kind=trainjob", *overrides])
