"""Settings that every task gets from the profile: image, hardware, limits, retries, secrets, caching.

One place for all pipelines, so that a rule of docs/cluster/kubeflow.md is kept or broken here. The pipelines
say which tasks there are, and connect them.
"""

import math
import re
from collections.abc import Callable, Collection
from typing import Any, cast

from kfp import kubernetes
from kfp.dsl import PipelineTask
from kfp.dsl.pipeline_channel import PipelineChannel

from components.images import GPU_IMAGE
from cooper_rl.config.kubernetes import quantity
from cooper_rl.schema.stages import StageName
from pipelines.profile import GpuPool, Pool, Profile, Retry

DEFAULT_HOURS = 12.0
HOURS: dict[StageName, float] = {
    "train_cooper": 240.0,
    "train_verify_rm": 72.0,
    "label_completions": 72.0,
    "merge_labels": 4.0,
    "sample_completions": 48.0,
    "take_champion": 2.0,
    "promote": 2.0,
    "report": 1.0,
    "compare_arms": 1.0,
    "check_settings": 1.0,
    "summarise_run": 1.0,
}
"""Wall-clock limit of a try; later tries end with it too, and with the hours in the queue."""

UNCACHED: frozenset[StageName] = frozenset(
    {
        "check_settings",
        "train_cooper",
        "evaluate_verify_rm",
        "report",
        "compare_arms",
        "summarise_run",
        "take_champion",
        "promote",
    }
)
"""Co-training keeps its own checkpoints; the others are cheap and say what holds now."""

USER = 1000
"""The user of both images; not root."""

Component = Callable[..., Any]
Given = PipelineChannel | str | list[str]
"""A value from outside a task: a parameter of the pipeline, a constant, or an output of another task."""


class Tasks:
    """Makes the tasks of one pipeline; `choice` (preset and overrides) goes to each of them."""

    def __init__(
        self, profile: Profile, choice: dict[str, Any], *, uncached: Collection[str] = UNCACHED
    ) -> None:
        self._profile, self._uncached = profile, uncached
        self.site = list(profile.overrides)
        """Settings that hold for every run."""
        self._choice = choice | {"site": self.site}

    def add(self, component: Component, display_name: str, **inputs: Given) -> PipelineTask:
        """A configured task."""
        task: PipelineTask = component(**(self._choice | inputs))
        spec: Any = task.component_spec
        name = cast(StageName, spec.name.replace("-", "_"))
        task.set_display_name(display_name)
        task.set_caching_options(self._profile.cache and name not in self._uncached)
        profile = self._profile
        waits_for_job = name == "train_cooper" and profile.starts_jobs
        is_gpu_stage = task.container_spec is not None and task.container_spec.image == GPU_IMAGE
        needs_gpu = is_gpu_stage and not waits_for_job
        task.set_container_image(profile.gpu_image if needs_gpu else profile.cpu_image)
        if needs_gpu and profile.gpu is not None:
            _put_on(task, profile.gpu)
            _give_gpu(task, profile.gpu)
        elif profile.cpu is not None:
            _put_on(task, profile.cpu)
        if profile.retry is not None:
            hours = profile.hours.get(name, HOURS.get(name, DEFAULT_HOURS))
            attempts = profile.retry.attempts if is_gpu_stage else profile.retry.cpu_attempts
            waits = profile.gpu.queue_hours if needs_gpu and profile.gpu and profile.gpu.queue else 0.0
            _limit(task, profile.retry, hours=hours, queue_hours=waits, attempts=attempts)
        for secret in profile.secrets:
            if not secret.tasks or name in secret.tasks:
                kubernetes.use_secret_as_env(task, secret.name, secret.env)
        if profile.image_pull_secrets:
            kubernetes.set_image_pull_secrets(task, list(profile.image_pull_secrets))
        return task


def _put_on(task: PipelineTask, pool: Pool) -> None:
    cpu, memory = _cpus(pool.cpu), _bytes(pool.memory)
    task.set_cpu_limit(cpu).set_cpu_request(cpu)
    task.set_memory_limit(memory).set_memory_request(memory)
    for key, value in pool.node_selector.items():
        kubernetes.add_node_selector(task, key, value)
    for toleration in pool.tolerations:
        kubernetes.add_toleration(
            task, toleration.key, toleration.operator, value=toleration.value, effect=toleration.effect
        )


def _cpus(text: str) -> str:
    """The same quantity as kfp takes it, which knows no unit but `m`."""
    return text if re.fullmatch(r"([0-9]*\.)?[0-9]+m?", text) else f"{math.ceil(quantity(text) * 1000)}m"


def _bytes(text: str) -> str:
    """The same quantity as kfp takes it, which knows no fractions and no `k`."""
    return text if re.fullmatch(r"[0-9]+(Ki|[MGTPE]i?)?", text) else str(math.ceil(quantity(text)))


def _give_gpu(task: PipelineTask, pool: GpuPool) -> None:
    task.set_accelerator_type(pool.type).set_accelerator_limit(pool.count)
    kubernetes.empty_dir_mount(
        task, "shared-memory", "/dev/shm", medium="Memory", size_limit=pool.shared_memory
    )
    if pool.queue is not None:
        kubernetes.add_pod_label(task, "kueue.x-k8s.io/queue-name", pool.queue)


def _limit(task: PipelineTask, retry: Retry, *, hours: float, queue_hours: float, attempts: int) -> None:
    """A pod's time limit counts from its start; `backoff_max_duration` counts the first try's wait too.

    Argo ends later tries at the second as well, so without the queue's hours a wait would shorten training.
    """
    seconds = round(hours * 3600)
    kubernetes.set_timeout(task, seconds)
    kubernetes.set_security_context(task, run_as_user=USER, run_as_group=USER, run_as_non_root=True)
    task.set_retry(
        attempts,
        backoff_duration=f"{retry.first_pause_seconds}s",
        backoff_factor=2.0,
        backoff_max_duration=f"{round((hours + queue_hours) * 3600)}s",
    )
