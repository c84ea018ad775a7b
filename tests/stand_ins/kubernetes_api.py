"""A stub of the Kubernetes API on a real socket: the paths that the `kubeflow` SDK asks for TrainJobs.

A posted TrainJob must be what the Trainer's own models read and write back unchanged. A test plays its pods
with `kubelet`, which is called in a thread with the cluster and the job. The rest of Kubernetes is missing.
Of authentication there is only refusal.
"""

import json
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

from kubeflow_trainer_api.models import TrainerV1alpha1ClusterTrainingRuntime, TrainerV1alpha1TrainJob

from tests.stand_ins.serving import serving

NAMESPACE = "cooper-rl"
TRAINER = "/apis/trainer.kubeflow.org/v1alpha1"
CREATED = "2026-11-21T12:00:00Z"
CONTEXT = "test"

Json = dict[str, Any]


class Cluster(ThreadingHTTPServer):
    """What is in the cluster, and what it was asked."""

    daemon_threads = True

    def __init__(self, kubelet: Callable[["Cluster", Json], None]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.kubelet = kubelet
        self.changed = threading.Condition()
        self.runtimes = {"torch-distributed": make_runtime("torch-distributed", "torch")}
        self.jobs: dict[str, Json] = {}
        self.pods: dict[str, Json] = {}
        self.logs: dict[str, list[str]] = {}
        self.events: list[Json] = []
        self.asked: list[tuple[str, str]] = []
        self.posted: list[Json] = []
        self.deleted: list[str] = []
        self.refusals: dict[tuple[str, str], tuple[int, str]] = {}
        """Method and end of a path -> status and message."""
        self.lost_answers: list[int] = []
        """The next jobs are created, and these are the answers; 0: the connection is closed without one."""
        self.lists_pods = threading.Event()
        """Until it is set, nobody who asks for pods is answered."""
        self.lists_pods.set()
        self.has_trainer = True
        """Without it, the API server knows none of its objects."""
        self.is_old = False
        """A Trainer of before runtimePatches."""
        self.cut_logs = 0
        """How many times a log's connection is cut after its first line."""

    def set_pod(self, job: Json, index: int, phase: str) -> str:
        """A pod of the job's, in a phase; returns its name."""
        name = f"{job['metadata']['name']}-node-0-{index}"
        labels = {
            "jobset.sigs.k8s.io/jobset-name": job["metadata"]["name"],
            "jobset.sigs.k8s.io/replicatedjob-name": "node",
            "batch.kubernetes.io/job-completion-index": str(index),
        }
        with self.changed:
            self.logs.setdefault(name, [])
            self.pods[name] = {
                "metadata": {"name": name, "labels": labels, "creationTimestamp": CREATED},
                "spec": {"containers": [{"name": "node", "image": job["spec"]["trainer"]["image"]}]},
                "status": {"phase": phase},
            }
            self.changed.notify_all()
        return name

    def write(self, pod: str, *lines: str) -> None:
        """Lines of a pod's log."""
        with self.changed:
            self.logs[pod] += lines
            self.changed.notify_all()

    def restart(self, pod: str) -> None:
        """The pod's container ended and is started again: those who follow its log see no more of it."""
        with self.changed:
            self.logs[pod] = []
            self.changed.notify_all()

    def remove_pods(self) -> None:
        """As a Job does whose containers were started again too often."""
        with self.changed:
            self.pods.clear()
            self.changed.notify_all()

    def end(self, job: Json, kind: str) -> None:
        """The job's last condition: Complete or Failed."""
        condition = {
            "type": kind,
            "status": "True",
            "lastTransitionTime": CREATED,
            "reason": kind,
            "message": "",
        }
        with self.changed:
            job["status"] = {"conditions": [condition]}

    def has_ended(self, pod: str) -> bool:
        return pod not in self.pods or self.pods[pod]["status"]["phase"] in ("Succeeded", "Failed")

    def write_kubeconfig(self, path: Path) -> Path:
        """As kubectl reads it."""
        text = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": CONTEXT,
            "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{self.server_address[1]}"}}],
            "users": [{"name": "u", "user": {"token": "t"}}],
            "contexts": [{"name": CONTEXT, "context": {"cluster": "c", "user": "u", "namespace": NAMESPACE}}],
        }
        path.write_text(json.dumps(text))
        return path


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    @property
    def cluster(self) -> Cluster:
        return cast(Cluster, self.server)

    def do_GET(self) -> None:
        path, query = self._begin()
        if path is None:
            return
        space = f"/namespaces/{NAMESPACE}"
        name = path.rsplit("/", 1)[-1]
        if path == f"/api/v1{space}/pods":
            self.cluster.lists_pods.wait()
            wanted = query["labelSelector"][0].split(",")[0].split("=")[1]
            pods = [
                pod
                for pod in self.cluster.pods.values()
                if pod["metadata"]["labels"]["jobset.sigs.k8s.io/jobset-name"] == wanted
            ]
            self._send(200, {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": pods})
        elif path == f"/api/v1{space}/events":
            self._send(200, {"kind": "EventList", "apiVersion": "v1", "items": self.cluster.events})
        elif path.startswith(f"/api/v1{space}/pods/") and path.endswith("/log"):
            self._send_log(path.split("/")[-2], is_followed=query.get("follow") == ["True"])
        elif path.startswith(f"{TRAINER}/clustertrainingruntimes/") and name in self.cluster.runtimes:
            self._send(200, self.cluster.runtimes[name])
        elif path == f"{TRAINER}{space}/trainjobs":
            label, value = query["labelSelector"][0].split("=")
            jobs = [
                job for job in self.cluster.jobs.values() if job["metadata"]["labels"].get(label) == value
            ]
            self._send(200, {"kind": "TrainJobList", "metadata": {}, "items": jobs})
        elif path.startswith(f"{TRAINER}{space}/trainjobs/") and name in self.cluster.jobs:
            self._send(200, self.cluster.jobs[name])
        else:
            self._refuse(404, f"{path} not found")

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        path, _ = self._begin()
        if path is None:
            return
        assert path == f"{TRAINER}/namespaces/{NAMESPACE}/trainjobs"
        job = TrainerV1alpha1TrainJob.from_dict(body)
        if job is None or job.to_dict() != body:
            self._refuse(422, "not a TrainJob")
            return
        name = body["metadata"]["name"]
        if name in self.cluster.jobs:
            self._refuse(409, f'trainjobs "{name}" already exists')
            return
        self.cluster.posted.append(json.loads(json.dumps(body)))
        body["metadata"] |= {"namespace": NAMESPACE, "creationTimestamp": CREATED}
        if self.cluster.is_old:
            del body["spec"]["runtimePatches"]
        self.cluster.jobs[name] = body
        status = self.cluster.lost_answers.pop(0) if self.cluster.lost_answers else 201
        if status == 201:
            self._send(201, body)
        elif status:
            self._refuse(status, "upstream request timeout")
        self.close_connection = not status
        threading.Thread(target=self.cluster.kubelet, args=(self.cluster, body), daemon=True).start()

    def do_DELETE(self) -> None:
        path, _ = self._begin()
        if path is None:
            return
        name = path.rsplit("/", 1)[-1]
        if self.cluster.jobs.pop(name, None) is None:
            self._refuse(404, f'trainjobs "{name}" not found')
            return
        self.cluster.deleted.append(name)
        with self.cluster.changed:
            self.cluster.pods = {k: v for k, v in self.cluster.pods.items() if not k.startswith(name)}
            self.cluster.changed.notify_all()
        self._send(200, {"kind": "Status", "status": "Success"})

    def _begin(self) -> tuple[str | None, dict[str, list[str]]]:
        url = urlsplit(self.path)
        self.cluster.asked.append((self.command, url.path))
        if url.path.startswith(TRAINER) and not self.cluster.has_trainer:
            self._send(404, b"404 page not found\n", "text/plain; charset=utf-8")
            return None, {}
        for (method, end), (status, message) in list(self.cluster.refusals.items()):
            if method == self.command and url.path.endswith(end):
                self._refuse(status, message)
                return None, {}
        return url.path, parse_qs(url.query)

    def _send_log(self, pod: str, *, is_followed: bool) -> None:
        cluster, sent, log = self.cluster, 0, self.cluster.logs[pod]
        is_cut = is_followed and cluster.cut_logs > 0
        cluster.cut_logs -= is_cut
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        # As the real server does: a client shows each line when it comes, and not all of them at the end.
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.close_connection = is_cut
        while True:
            with cluster.changed:
                has_ended = cluster.has_ended(pod) or cluster.logs[pod] is not log
                lines = log[sent:]
            for line in lines:
                self._send_chunk(f"{line}\n".encode())
                sent += 1
                if is_cut:
                    return
            if has_ended or not is_followed:
                self._send_chunk(b"")
                return
            time.sleep(0.02)

    def _send_chunk(self, data: bytes) -> None:
        """Of a chunked body; an empty one ends it."""
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

    def _refuse(self, status: int, message: str) -> None:
        self._send(status, {"kind": "Status", "status": "Failure", "message": message, "code": status})

    def _send(self, status: int, body: Json | bytes, kind: str = "application/json") -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""


def make_runtime(name: str, framework: str) -> Json:
    """A ClusterTrainingRuntime as the Trainer ships them, shortened."""
    node = {"containers": [{"name": "node", "image": "example/runtime:1"}]}
    runtime = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": name, "labels": {"trainer.kubeflow.org/framework": framework}},
        "spec": {
            "mlPolicy": {"numNodes": 1, "torch": {}},
            "template": {
                "spec": {
                    "replicatedJobs": [
                        {
                            "name": "node",
                            "template": {
                                "metadata": {
                                    "labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
                                },
                                "spec": {"template": {"spec": node}},
                            },
                        }
                    ]
                }
            },
        },
    }
    assert TrainerV1alpha1ClusterTrainingRuntime.from_dict(runtime) is not None
    return runtime


@contextmanager
def run_cluster(kubelet: Callable[[Cluster, Json], None]) -> Generator[Cluster]:
    """The stub, on a free port."""
    cluster = Cluster(kubelet)
    with serving(cluster):
        yield cluster
