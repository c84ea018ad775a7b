"""What the acceptance tests need of a cluster: kubectl, a KFP API server, and Python in one of its pods.

Everything that a test makes has `id` in its name or below its prefix of the store, and `clean` removes it.
"""

import json
import os
import subprocess
import sys
import time
import uuid
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from kfp_server_api.exceptions import ApiException
from urllib3.exceptions import HTTPError

from cooper_rl.config.load import load
from pipelines.profile import Profile
from pipelines.remote.server import Server
from pipelines.remote.submit import FINAL_STATES, find_experiment, start, upload
from tests.on_cluster.objects import make_pod
from tests.small_run import ROOT, SMALL

T = TypeVar("T")
STEPS = 120
"""They take long enough for a busy machine to see the tenth and to take the pod away before the last."""
TRAINING = [
    *(override for override in SMALL if not override.startswith("cooper.steps=")),
    f"cooper.steps={STEPS}",
    "cooper.checkpoint_every=5",
]
RUN_LABEL = "workflows.argoproj.io/workflow"
"""Pods with it may reach the object store (manifests/base/storage/network-policies.yaml)."""
NODE_NAME = "workflows.argoproj.io/node-name"
LAUNCHER = "kfp-launcher"
"""The ConfigMap that says where Kubeflow keeps the artifacts of a namespace's runs."""
ARTIFACTS_SECRET = "object-store-kfp"
"""It opens the bucket of artifacts (manifests/base/runs/launcher.yaml)."""
TRAINJOBS = "trainjobs.trainer.kubeflow.org"
PIPELINES = ("end-to-end", "retrain", "experiment")
"""Names that Kubeflow has for the pipelines of these tests."""
STORE = """
import json, socket, sys, time
from minio import Minio
from minio.credentials.providers import EnvAWSProvider
from urllib.parse import urlsplit
given = json.loads(sys.argv[1])
address = urlsplit(given["endpoint"])
port = address.port or {"http": 80, "https": 443}[address.scheme]
end = time.monotonic() + 60
while True:
    try:
        socket.create_connection((address.hostname, port), timeout=10).close()
        break
    except OSError:
        if time.monotonic() > end:
            raise
        time.sleep(1)
store = Minio(endpoint=address.netloc, credentials=EnvAWSProvider(), secure=address.scheme == "https")
"""
"""How every script of `Site.ask_store` begins. A network plug-in may take some seconds to admit its pod."""


@dataclass
class Site:
    """A cluster, and what was made on it."""

    server: Server
    profile: Profile
    profile_path: Path
    namespace: str
    """Of runs."""
    storage_namespace: str
    id: str = field(default_factory=lambda: f"acceptance-{uuid.uuid4().hex[:8]}")
    runs: list[str] = field(default_factory=list[str])
    workflows: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    """Argo names for each run, as its pods had them: an hour after its end they and its workflow are gone."""
    artifacts: list[str] = field(default_factory=list[str])
    """Addresses below which deleted runs left artifacts and logs. They go at the end: Kubeflow's cache hands
    them to later runs."""

    def __post_init__(self) -> None:
        storage = load(self.profile.preset, self.profile.overrides).storage
        self.checkpoints = f"{storage.uri}/{self.id}"
        self.endpoint = storage.endpoint
        self.overrides = [
            *TRAINING,
            f"storage.uri={self.checkpoints}",
            f"registry.uri={self.checkpoints}/registry",
            # Outputs of an earlier session, which removed them, are in Kubeflow's cache under another seed.
            f"seed={int(self.id[-7:], 16)}",
        ]

    def kubectl(
        self, *arguments: str, given: object = None, check: bool = True, with_warnings: bool = False
    ) -> str:
        """What kubectl says, with `given` as its standard input."""
        done = subprocess.run(
            ["kubectl", *arguments],
            input=None if given is None else json.dumps(given),
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        assert done.returncode == 0 or not check, f"kubectl {' '.join(arguments)}: {done.stderr}"
        return done.stdout + (done.stderr if with_warnings else "")

    def get(self, *arguments: str, namespace: str | None = None) -> list[dict[str, Any]]:
        """Objects as kubectl lists them."""
        found = self.kubectl("--namespace", namespace or self.namespace, "get", *arguments, "--output=json")
        return json.loads(found)["items"]

    def submit(self, *arguments: str, overrides: Sequence[str] = (), pipeline: str = "end_to_end") -> str:
        """`python -m pipelines submit` as a person types it; returns the run's id."""
        settings = [word for each in (*self.overrides, *overrides) for word in ("--set", each)]
        shown = self.pipelines("submit", pipeline, "--iterations", "1", *settings, *arguments)
        (run_id,) = (line.split()[1] for line in shown.splitlines() if line.startswith("run "))
        self.runs.append(run_id)
        return run_id

    def start(
        self, profile: Profile, *overrides: str, run_key: str = "", pipeline: str = "end_to_end"
    ) -> str:
        """Start a run with another profile as the dashboard does, without the checks of `submit`."""
        given: dict[str, Any] = {"preset": "laptop", "overrides": [*self.overrides, *overrides]}
        given |= {"run_key": run_key} if run_key else {}
        version = upload(self.server, pipeline, profile=profile, iterations=1, parameters=given)
        run_id = start(self.server, version, experiment=self.id)
        self.runs.append(run_id)
        return run_id

    def pipelines(self, *arguments: str) -> str:
        """Run `python -m pipelines` with this site's profile and preset laptop."""
        command = [sys.executable, "-m", "pipelines", *arguments]
        if arguments[0] == "submit" or arguments[:2] == ("schedule", "apply"):
            command += ["--profile", str(self.profile_path), "--preset", "laptop", "--experiment", self.id]
        if self.server.place.namespace:
            command += ["--namespace", self.server.place.namespace]
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False, env=os.environ.copy()
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def state(self, run_id: str) -> str:
        """As the API server has it."""
        return str(self.server.client.get_run(run_id).state)

    def wait_for_end(self, run_id: str, *, minutes: float) -> str:
        """The state in which a run ended."""
        return wait_for(
            lambda: state if (state := self.state(run_id)) in FINAL_STATES else None,
            minutes=minutes,
            what=f"run {run_id} to end",
        )

    def pods(self, run_id: str, task: str = "") -> list[dict[str, Any]]:
        """The pods of a run, or those that execute one of its tasks, oldest first."""
        found = self.get(
            "pods", "--selector", f"pipeline/runid={run_id}", "--sort-by=.metadata.creationTimestamp"
        )
        names = {pod["metadata"]["labels"][RUN_LABEL] for pod in found}
        self.workflows.setdefault(run_id, set()).update(names)
        return [pod for pod in found if not task or _executes(pod, task)]

    def log(self, pod: str, namespace: str | None = None) -> str:
        """What a task wrote until now."""
        return self.kubectl(
            "--namespace", namespace or self.namespace, "logs", pod, "--container=main", check=False
        )

    def wait_for_step(self, run_id: str, step: int, *, minutes: float) -> dict[str, Any]:
        """The metadata of the pod that trains the policy, when its checkpoint of that step is written."""

        def look() -> dict[str, Any] | None:
            running = [
                pod for pod in self.pods(run_id, "train-cooper") if pod["status"]["phase"] == "Running"
            ]
            found = [pod["metadata"] for pod in running]
            return next((pod for pod in found if f"/step-{step:06d}" in self.log(pod["name"])), None)

        return wait_for(look, minutes=minutes, what=f"step {step} of run {run_id}")

    def messages(self, run_id: str) -> str:
        """What the run's Argo nodes say, which the dashboard shows beside each."""
        nodes = [
            node
            for each in self.get("workflows.argoproj.io", "--selector", f"pipeline/runid={run_id}")
            for node in each.get("status", {}).get("nodes", {}).values()
        ]
        return "\n".join(node["message"] for node in nodes if node.get("message"))

    def ask_store(self, script: str, *, secret: str | None = None, **given: object) -> Any:
        """Run Python in a pod with the keys of a secret; returns the JSON that the script prints."""
        return json.loads(self.run_pod(STORE + script, secret=secret, given=given))

    def run_pod(
        self,
        script: str,
        *,
        given: dict[str, object],
        secret: str | None = None,
        namespace: str | None = None,
    ) -> str:
        """What a script prints in a pod of the run's image; in another namespace it has no secret."""
        name = f"{self.id}-{uuid.uuid4().hex[:6]}"
        is_run = namespace is None
        namespace = namespace or self.namespace
        environment = [
            {"name": variable, "valueFrom": {"secretKeyRef": {"name": secret or each.name, "key": key}}}
            for each in self.profile.secrets
            for key, variable in each.env.items()
            if is_run
        ]
        pod = make_pod(
            name,
            self.profile.cpu_image,
            ["python", "-c", script, json.dumps({"endpoint": self.endpoint, **given})],
            labels={RUN_LABEL: name} if is_run else {},
            environment=environment,
            pull_secrets=self.profile.image_pull_secrets,
        )
        self.kubectl("--namespace", namespace, "create", "--filename=-", given=pod)
        try:
            wait_for(lambda: self._has_ended(name, namespace), minutes=5, what=f"pod {name} to end")
            return self.log(name, namespace)
        finally:
            self.kubectl("--namespace", namespace, "delete", "pod", name, "--wait=false")

    def _has_ended(self, pod: str, namespace: str) -> bool:
        phase = self.kubectl("--namespace", namespace, "get", "pod", pod, "--output=jsonpath={.status.phase}")
        assert phase != "Failed", self.log(pod, namespace)
        return phase == "Succeeded"

    def weights(self, run_key: str) -> dict[str, Any]:
        """Relative path -> hash of the models in a run's last checkpoint; and its `step`."""
        return self.ask_store(LAST_CHECKPOINT, uri=f"{self.checkpoints}/{run_key}")

    def knows(self, resource: str) -> bool:
        """True if the cluster has a kind, such as `trainjobs.trainer.kubeflow.org`."""
        group = resource.partition(".")[2]
        return resource in self.kubectl("api-resources", f"--api-group={group}", "--output=name").split()

    def remove(self, run_id: str) -> None:
        """End a run and delete it: a pod whose image is nowhere waits on, and keeps what it asked for."""
        if self.state(run_id) == "CANCELING":  # it cannot be terminated again, and its last task still writes
            self.wait_for_end(run_id, minutes=5)
        self.artifacts += self.artifacts_of(run_id)
        if self.state(run_id) not in FINAL_STATES:
            self.server.client.terminate_run(run_id)
        self.server.client.delete_run(run_id)
        self.runs.remove(run_id)

    def artifacts_of(self, run_id: str) -> list[str]:
        """Addresses of a run's artifacts and logs, as `manifests/` has them; none where a site has not."""
        place = ("--namespace", self.namespace, "get", "configmap", LAUNCHER, "--ignore-not-found")
        root = self.kubectl(*place, "--output=jsonpath={.data.defaultPipelineRoot}")
        if not root.startswith("s3://"):
            return []
        found = self.get("workflows.argoproj.io", "--selector", f"pipeline/runid={run_id}")
        names = {workflow["metadata"]["name"] for workflow in found} | self.workflows.get(run_id, set())
        logs = [f"{root.removesuffix('/v2/artifacts')}/logs/{name}-" for name in sorted(names)]
        return [*(f"{root}/{pipeline}/{run_id}/" for pipeline in PIPELINES), *logs]

    def experiment_id(self) -> str:
        """Of the experiment that holds every run of these tests."""
        return find_experiment(self.server, self.id)

    def clean(self) -> None:
        """Remove every run, job, experiment and object that the tests made; say what stays."""
        for run_id in list(self.runs):
            self.remove(run_id)
        for job in self.jobs():
            self.kubectl("--namespace", self.namespace, "delete", TRAINJOBS, job["metadata"]["name"])
        self.server.client.delete_experiment(self.experiment_id())
        self.ask_store(REMOVE, uris=[f"{self.checkpoints}/"])
        secrets = ("get", "secret", ARTIFACTS_SECRET, "--ignore-not-found", "--output=name")
        if not self.artifacts or not self.kubectl("--namespace", self.namespace, *secrets):
            stays = ", ".join(self.artifacts) or "below the pipeline root"
            warnings.warn(f"artifacts and logs of {self.id} stay: {stays}", stacklevel=1)
            return
        self.ask_store(REMOVE, secret=ARTIFACTS_SECRET, uris=self.artifacts)

    def jobs(self, run_key: str = "") -> list[dict[str, Any]]:
        """The TrainJobs of these tests, or of one of their runs; their arguments hold its address."""
        found = self.get(TRAINJOBS) if self.knows(TRAINJOBS) else []
        return [job for job in found if self.id in (said := json.dumps(job["spec"])) and run_key in said]


def _executes(pod: dict[str, Any], task: str) -> bool:
    node = pod["metadata"]["annotations"].get(NODE_NAME, "")
    return f".{task}(" in node and "executor" in node


def wait_for(look: Callable[[], T | None], *, minutes: float, what: str) -> T:
    """The first answer that is true; fails after so many minutes.

    Kubeflow's server may fail meanwhile, and so may what is in front of it: its user interface is started
    again where it is too slow for its probes, and a `kubectl port-forward` ends with its pod.
    """
    end = time.monotonic() + 60 * minutes
    while True:
        try:
            if found := look():
                return found
        except ApiException as error:
            if error.status < 500:
                raise
        except HTTPError:
            pass
        assert time.monotonic() < end, f"waited {minutes:g} minutes for {what}"
        time.sleep(2)


LAST_CHECKPOINT = """
bucket, _, prefix = given["uri"].removeprefix("s3://").partition("/")
found = sorted(
    each.object_name for each in store.list_objects(bucket, prefix=prefix + "/", recursive=True)
    if each.object_name.endswith("/manifest.json")
)
manifest = json.loads(store.get_object(bucket, found[-1]).read())
weights = {name: value for name, value in manifest["sha256"].items() if name.endswith(".safetensors")}
print(json.dumps({"step": manifest["step"], **weights}))
"""
REMOVE = """
number = 0
for uri in given["uris"]:
    bucket, _, prefix = uri.removeprefix("s3://").partition("/")
    for each in list(store.list_objects(bucket, prefix=prefix, recursive=True)):
        store.remove_object(bucket, each.object_name)
        number += 1
print(json.dumps(number))
"""
