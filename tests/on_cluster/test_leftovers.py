"""The TrainJobs that the exit task deletes, on a real API server with the Trainer's CRDs.

KUBECONFIG is enough: no Kubeflow Pipelines, and no controller. One that is there leaves the jobs alone.
"""

import os
import uuid
from collections.abc import Generator
from contextlib import suppress
from typing import Any

import pytest

pytest.importorskip("kubeflow.trainer", reason="the SDK is not installed (extra trainjob)")

from kubeflow.trainer.constants.constants import GROUP, TRAINJOB_PLURAL, VERSION
from kubernetes import client, config

from cooper_rl.cluster.leftovers import end_jobs
from cooper_rl.cluster.trainjob import RUN, run_label
from cooper_rl.config.infrastructure import LaunchConfig

pytestmark = pytest.mark.cluster

FINALIZER = "acceptance.cooper-rl.io/wait"
ELSEWHERE = "kueue.x-k8s.io/multikueue"
"""Whose jobs the Trainer's controller passes over. From others it removes a `Failed` that is not its own."""


class Jobs:
    """TrainJobs of the runs of one test, in the namespace of runs."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self._prefix = f"acceptance-{uuid.uuid4().hex[:8]}"
        self._api: Any = client.CustomObjectsApi(config.new_client_from_config())
        self._kind = (GROUP, VERSION, namespace, TRAINJOB_PLURAL)

    def run_uri(self, name: str) -> str:
        return f"s3://cooper-rl/{self._prefix}/{name}"

    def create(self, name: str, run: str, *, ending: str | None = None, finalizer: str | None = None) -> str:
        """A job that goes on, or has ended in a way; returns its place."""
        name = f"{self._prefix}-{name}"
        metadata = {
            "name": name,
            "labels": {RUN: run_label(self.run_uri(run)), "acceptance": self._prefix},
            "finalizers": [finalizer] if finalizer else [],
        }
        job = {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": "TrainJob",
            "metadata": metadata,
            "spec": {
                "runtimeRef": {"name": "torch-distributed"},
                "suspend": True,
                "managedBy": ELSEWHERE,
            },
        }
        self._api.create_namespaced_custom_object(*self._kind, job)
        if ending is not None:
            condition = {"type": ending, "status": "True", "reason": "Test", "message": ""}
            condition["lastTransitionTime"] = "2026-11-21T12:00:00Z"
            status = {"status": {"conditions": [condition]}}
            self._api.patch_namespaced_custom_object_status(*self._kind, name, status)
        return f"{self.namespace}/{name}"

    def places(self) -> set[str]:
        found = self._api.list_namespaced_custom_object(
            *self._kind, label_selector=f"acceptance={self._prefix}"
        )
        return {f"{self.namespace}/{job['metadata']['name']}" for job in found["items"]}

    def clean(self) -> None:
        for place in self.places():
            name = place.partition("/")[2]
            self._api.delete_namespaced_custom_object(*self._kind, name)
            with suppress(client.ApiException):  # only a job that a finalizer held is still there
                self._api.patch_namespaced_custom_object(*self._kind, name, {"metadata": {"finalizers": []}})


@pytest.fixture
def jobs() -> Generator[Jobs]:
    if not os.environ.get("KUBECONFIG"):
        pytest.skip("no cluster: set KUBECONFIG (docs/cluster/operations.md, step 9)")
    found = Jobs(os.environ.get("COOPER_NAMESPACE", "kubeflow"))
    try:
        found.places()
    except client.ApiException as error:
        if error.status != 404:
            raise
        pytest.skip("no TrainJob in this cluster: install Kubeflow Trainer 2.2 or later (operations.md)")
    yield found
    found.clean()


def end(jobs: Jobs, run: str) -> list[str]:
    """What is deleted of a run, without any doubt."""
    launch = {"kind": "trainjob", "image": "x", "storage_secret": "x", "namespace": jobs.namespace}
    found = end_jobs(LaunchConfig.model_validate(launch), jobs.run_uri(run))
    assert found.doubts == []
    return found.deleted


def test_the_jobs_of_a_run_that_go_on_are_deleted_and_no_other(jobs: Jobs) -> None:
    longest = "monday".ljust(99, "x")  # a run's name may be longer than a label
    mine = {jobs.create("first", longest), jobs.create("second", longest)}
    kept = {
        jobs.create("complete", longest, ending="Complete"),
        jobs.create("failed", longest, ending="Failed"),
        jobs.create("other", f"{longest}x"),
    }
    assert set(end(jobs, longest)) == mine
    assert jobs.places() == kept
    assert end(jobs, longest) == []


def test_a_job_that_a_finalizer_holds_is_deleted_once(jobs: Jobs) -> None:
    place = jobs.create("held", "monday", finalizer=FINALIZER)
    assert end(jobs, "monday") == [place]
    assert jobs.places() == {place}
    assert end(jobs, "monday") == []
