"""The description of our TrainJobs: command, resources, secrets, settings of a `restricted` namespace.

The `kubeflow` SDK turns it into the object that is posted. `cluster/launch.py` talks to the cluster.
"""

import hashlib
import json
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from cooper_rl.config.infrastructure import LaunchConfig

MOUNT = "/var/run/cooper-rl"
"""The folder that holds a folder for each secret of a job."""
USUAL_GRACE_SECONDS = 30
"""A pod's grace period where nothing says another."""
MANAGER = "cooper-rl.io/launch"
"""Owner of our patch among those of a job."""
PART_OF = "app.kubernetes.io/part-of"
RUN = "cooper-rl.io/run"
"""Label of a job: the run that it belongs to, hashed; the same for each of its arms."""
MAX_TMP = "400Gi"
"""Ceiling of a job's temporary files: models, and the checkpoint that is being stored."""


class Program(NamedTuple):
    """A Python module to be run by every process of a job."""

    module: str
    arguments: Sequence[str]
    grace_seconds: float
    """Seconds that a job has to save after SIGTERM."""
    run_uri: str
    """Place of its run in the store, without an arm's name."""


def job_name(config: LaunchConfig, program: Program) -> str:
    """The same for the same job, so that whoever starts it again finds it."""
    # The whole content: a job of other settings must not be taken for this one, and followed as if it were.
    content = json.dumps([config.model_dump(mode="json"), program.module, list(program.arguments)])
    return f"cooper-rl-{_digest(content)}"


def run_label(run_uri: str) -> str:
    """Value of the label RUN, which may have 63 characters."""
    return _digest(run_uri)


def _digest(text: str) -> str:
    # 12 of 64 digits: Kubernetes allows 63 characters, of which pods and services add their own.
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def grace_period(program: Program) -> int:
    """Seconds between SIGTERM and SIGKILL of a job's pods."""
    # torchrun ends a moment after its processes.
    return math.ceil(program.grace_seconds) + 5


def kept_grace_period(job: dict[str, Any]) -> int:
    """The grace period that our patch of a stored job still has."""
    patches = {patch.get("manager"): patch for patch in job["spec"].get("runtimePatches", [])}
    place: Any = patches.get(MANAGER, {})
    for key in ("trainingRuntimeSpec", "template", "spec", "replicatedJobs"):
        place = place.get(key, {})
    pods = [job["template"]["spec"]["template"]["spec"] for job in place or []]
    return next(
        (pod["terminationGracePeriodSeconds"] for pod in pods if "terminationGracePeriodSeconds" in pod),
        USUAL_GRACE_SECONDS,
    )


def trainer_of(config: LaunchConfig) -> Any:
    """The SDK's CustomTrainerContainer."""
    from kubeflow.trainer import CustomTrainerContainer

    resources: dict[str, Any] = {"cpu": config.cpu, "memory": config.memory}
    resources["ephemeral-storage"] = config.ephemeral_storage
    resources["nvidia.com/gpu"] = config.gpus_per_node or None
    return CustomTrainerContainer(
        image=config.image or "",
        num_nodes=config.nodes,
        resources_per_node={name: value for name, value in resources.items() if value is not None},
        env=dict(config.environment),
    )


def labels_of(config: LaunchConfig, program: Program) -> dict[str, str]:
    """The job's labels."""
    queue = {} if config.queue is None else {"kueue.x-k8s.io/queue-name": config.queue}
    return {PART_OF: "cooper-rl", RUN: run_label(program.run_uri), **queue}


def options_of(config: LaunchConfig, program: Program) -> list[Any]:
    """The SDK's options: name, queue, command and patches of the runtime."""
    from kubeflow.trainer.options import Labels, Name, TrainerArgs, TrainerCommand

    # The number of processes is said here: the runtime's `auto` takes CPUs where there are no GPUs.
    command = [
        "torchrun",
        f"--nproc-per-node={config.processes_per_node}",
        # torchrun kills its processes 30 seconds after SIGTERM unless told otherwise; a checkpoint of a
        # large model takes longer.
        f"--shutdown-timeout={math.ceil(program.grace_seconds)}",
        "-m",
        program.module,
    ]
    return [
        Name(job_name(config, program)),
        Labels(labels_of(config, program)),
        TrainerCommand(command),
        # In arguments, Kubernetes expands $(NAME) and torchrun ${name}, and each reads $$ as $.
        TrainerArgs([argument.replace("$", "$$$$") for argument in program.arguments]),
        _patch(config, program),
    ]


def _patch(config: LaunchConfig, program: Program) -> Any:
    """An option of our own: the SDK's RuntimePatch knows no grace period."""
    # Kubeflow Pipelines keeps Istio's sidecar from its own pods alone. A job's would wait for a control plane
    # that the network policies keep from it.
    pods = {"metadata": {"labels": {"sidecar.istio.io/inject": "false"}}, "spec": _pod(config, program)}
    patch = {
        "manager": MANAGER,
        "trainingRuntimeSpec": {
            "template": {
                "spec": {"replicatedJobs": [{"name": "node", "template": {"spec": {"template": pods}}}]}
            }
        },
    }

    def add(job: dict[str, Any], trainer: Any, backend: Any) -> None:
        job.setdefault("spec", {}).setdefault("runtimePatches", []).append(patch)

    return add


def _pod(config: LaunchConfig, program: Program) -> dict[str, Any]:
    secrets = dict.fromkeys([config.storage_secret or "", *config.secrets])
    pod: dict[str, Any] = {
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 1000,
            "runAsGroup": 1000,
            # Mounted volumes belong to root otherwise, and the image does not run as root.
            "fsGroup": 1000,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumes": [
            # A container has 64 MiB of /dev/shm by default: NCCL and torch's workers share memory there,
            # and fail with a bus error beyond it.
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": config.shared_memory}},
            {"name": "tmp", "emptyDir": {"sizeLimit": MAX_TMP}},
            *({"name": f"secret-{n}", "secret": {"secretName": s}} for n, s in enumerate(secrets)),
        ],
        "containers": [
            {
                "name": "node",
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    # With /tmp as the one place to write: nothing that the job loads can be replaced while
                    # it runs.
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                },
                "volumeMounts": [
                    {"name": "shm", "mountPath": "/dev/shm"},
                    {"name": "tmp", "mountPath": "/tmp"},
                    *(
                        {"name": f"secret-{n}", "mountPath": f"{MOUNT}/{s}", "readOnly": True}
                        for n, s in enumerate(secrets)
                    ),
                ],
            }
        ],
    }
    # Not where it is the usual one: Trainer 2.2 does not know the field, and a Kueue that speaks 2.2 takes it
    # out of a job of 2.3, whose pods are refused then.
    if grace_period(program) != USUAL_GRACE_SECONDS:
        pod["terminationGracePeriodSeconds"] = grace_period(program)
    if config.gpus_per_node:
        # GPU nodes are often tainted so, to keep other pods away; without a taint it changes nothing.
        pod["tolerations"] = [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    if config.node_selector:
        pod["nodeSelector"] = dict(config.node_selector)
    if config.image_pull_secrets:
        pod["imagePullSecrets"] = [{"name": name} for name in config.image_pull_secrets]
    return pod
