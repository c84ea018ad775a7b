"""Run a program on the nodes of a Kubeflow TrainJob: start it, follow it, say why it failed, end it.

A job's name comes from its content. So whoever starts the same job again, because the process that followed
it was killed, finds it and follows it. `manifests/base/runs/rbac.yaml` allows all that is asked of the
cluster. `cluster/trainjob.py` describes the job, and `run/launching.py` carries files to it and back.
"""

import logging
import signal
import time
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from threading import Event, Lock, Thread, current_thread, main_thread
from types import FrameType
from typing import Any, TypeVar

from cooper_rl.cluster.sdk import (
    ConflictError,
    MissingError,
    TransientError,
    ask,
    connect,
)
from cooper_rl.cluster.trainjob import (
    PART_OF,
    RUN,
    Program,
    grace_period,
    job_name,
    kept_grace_period,
    labels_of,
    options_of,
    trainer_of,
)
from cooper_rl.config.infrastructure import LaunchConfig
from cooper_rl.errors import LaunchError, StoppedError

logger = logging.getLogger(__name__)

T = TypeVar("T")

NUM_TAIL_LINES = 40
"""Lines of a failed pod's log that the error shows; torchrun's own account of a failure takes about 25."""
OWNER = (PART_OF, RUN)
"""Labels by which a job of ours is known."""
SECONDS_TO_REPLACE = 60.0
SECONDS_TO_READ_LOG = 10.0
SECONDS_TO_NOTICE = 0.02
"""A pipeline task that is ended has .3 to 2 seconds: Kubeflow's launcher does not wait for its process."""


def run(config: LaunchConfig, program: Program, *, is_stopped: Callable[[], bool]) -> None:
    """Run a program as a TrainJob until it is complete; its first node's log goes to ours.

    A job of the same content that runs already is followed, one that has ended is replaced. When
    `is_stopped` says so, and on Ctrl-C, the job is deleted, which sends SIGTERM to its processes.

    Raises:
        ConfigError: the SDK is not installed.
        LaunchError: the cluster refuses or does not answer, or the job failed; with its last log lines.
        StoppedError: `is_stopped`; what the program saved stays.
    """
    cluster = _Cluster(config, program, is_stopped)
    with cluster.noting_ctrl_c():
        try:
            cluster.start()
            with cluster.deleted_at_stop():
                cluster.follow()
        except (KeyboardInterrupt, StoppedError):
            cluster.delete()
            raise
        except Exception as error:
            # In a wait for a lock Ctrl-C may come out as "RuntimeError: release unlocked lock".
            if not cluster.is_interrupted:
                raise
            cluster.delete()
            raise KeyboardInterrupt from error


class _Cluster:
    """One job on a cluster."""

    def __init__(self, config: LaunchConfig, program: Program, is_stopped: Callable[[], bool]) -> None:
        self._config = config
        self._program = program
        self._is_stopped = is_stopped
        name = job_name(config, program)
        self._client = connect(config)
        self._place = f"{self._client.backend.namespace}/{name}"
        self._name = name
        self._deletion = Lock()
        self._is_deleted = False
        self.is_interrupted = False

    def start(self) -> None:
        """Create the job, unless it is there and goes on.

        Raises:
            StoppedError: before the job was created or right after it.
        """
        found = self._patiently(self._find)
        if found is not None:
            self._check_ours()
            if found.status not in ("Complete", "Failed"):
                self._check_patched()
                logger.info("TrainJob %s is there already and is followed", self._place)
                return
        runtime = self._patiently(self._get_runtime)
        if found is not None:
            self._replace()
        # A process that was told to end may be gone before it could delete what it creates now.
        self._check_stopped()
        self._create(runtime)
        self._check_stopped()
        self._check_patched()
        logger.info("TrainJob %s created, %d nodes of %s", self._place, self._config.nodes, runtime.name)

    def _create(self, runtime: Any) -> None:
        """Create the job, or find it created by a request whose answer was lost."""
        deadline = time.monotonic() + self._config.retry_seconds
        doubt = ""
        while (failure := self._try_to_create(runtime)) is not None:
            # A proxy's 504 says nothing of what the server did, and the server may do it later.
            if isinstance(failure, TransientError):
                doubt = (
                    "; it may have been created all the same, and goes on then: start again with the same "
                    "arguments to follow it"
                )
            self._check_stopped()
            try:
                found = self._patiently(self._find)
            except LaunchError as error:
                raise LaunchError(f"{error}{doubt}") from error
            if found is not None:
                self._check_ours()
                return
            if time.monotonic() > deadline:
                raise LaunchError(f"{failure}{doubt}") from failure
            logger.warning("%s; asking again", failure)
            self._pause()

    def _try_to_create(self, runtime: Any) -> LaunchError | None:
        """Returns a failure after which the job may be there; None: it was created.

        Kubernetes answers 409 if it is there, and if a quota changed during the request.
        """
        try:
            self._ask(
                f"TrainJob {self._place} cannot be created",
                lambda: self._client.train(
                    runtime=runtime,
                    trainer=trainer_of(self._config),
                    options=options_of(self._config, self._program),
                ),
            )
        except (TransientError, ConflictError) as error:
            return error
        return None

    def _check_ours(self) -> None:
        """Refuse a job of this name that another program made: it is neither followed nor deleted."""
        try:
            labels = self._patiently(self._read)["metadata"].get("labels") or {}
        except MissingError:
            return
        wanted = labels_of(self._config, self._program)
        if any(labels.get(key) != wanted[key] for key in OWNER):
            self._is_deleted = True  # nothing of ours is left to delete
            raise LaunchError(
                f"TrainJob {self._place} is there already and is not this run's: it has not the labels "
                f"{', '.join(f'{key}={wanted[key]}' for key in OWNER)}; rename or delete it"
            )

    @contextmanager
    def noting_ctrl_c(self) -> Generator[None]:
        """Let no Ctrl-C in the block get lost.

        Python drops every exception that is raised while a file or an answer of HTTP is closed because nobody
        refers to it any more, KeyboardInterrupt too. Each answer of the API server ends in this way.
        """
        previous = signal.getsignal(signal.SIGINT)
        # Outside the main thread nobody may set a handler, and none is asked where Ctrl-C is ignored.
        if current_thread() is not main_thread() or not callable(previous):
            yield
            return

        def note(number: int, frame: FrameType | None) -> None:
            self.is_interrupted = True
            previous(number, frame)

        signal.signal(signal.SIGINT, note)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, previous)
        self._check_interrupted()

    @contextmanager
    def deleted_at_stop(self) -> Generator[None]:
        """Delete the job as soon as the process is told to end, whatever question the block waits for."""
        has_ended = Event()

        def watch() -> None:
            while not has_ended.wait(SECONDS_TO_NOTICE):
                if self._is_stopped():
                    self.delete()
                    return

        Thread(target=watch, name="stop of the TrainJob", daemon=True).start()
        try:
            yield
        finally:
            has_ended.set()

    def follow(self) -> None:
        """Follow the job until it is complete; log every change of its state."""
        log = _Log(self._client, self._name)
        shown = ""
        while True:
            self._check_stopped()
            job = self._look(self._get)
            if self._config.queue is not None:
                self._check_grace_period(self._look(self._read))
            # The SDK never says Running of a job that waited in a queue, so the pods speak.
            steps = sorted(job.steps, key=lambda step: step.name)
            state = ", ".join([job.status, *(f"{step.name} {step.status}" for step in steps)])
            if state != shown:
                logger.info("TrainJob %s: %s", self._place, state)
                shown = state
            log.follow(steps)
            if job.status == "Complete":
                log.finish(steps)
                return
            if job.status == "Failed":
                log.finish(steps)
                raise self._failure(steps, log)
            self._pause()

    def _check_interrupted(self) -> None:
        if self.is_interrupted:
            raise KeyboardInterrupt

    def _check_stopped(self) -> None:
        self._check_interrupted()
        if self._is_stopped():
            raise StoppedError(
                f"SIGTERM: TrainJob {self._place} is deleted and saves what it has; start again with the "
                "same arguments to continue"
            )

    def _look(self, call: Callable[[], T]) -> T:
        """The answer to a question about the job that was created.

        Raises:
            LaunchError: there is none; says whether the job goes on.
        """
        try:
            return self._patiently(call)
        except LaunchError as error:
            self._check_stopped()  # which deleted it meanwhile
            if isinstance(error, MissingError) and not self._is_there():  # and no pod or runtime is missed
                raise LaunchError(
                    f"TrainJob {self._place} is gone: somebody deleted it; start again with the same "
                    "arguments to continue from its last checkpoint"
                ) from error
            raise LaunchError(
                f"{error}; the job goes on: start again with the same arguments to follow it"
            ) from error

    def _is_there(self) -> bool:
        try:
            self._read()
        except MissingError:
            return False
        return True

    def _patiently(self, call: Callable[[], T]) -> T:
        """The result of a call; an API server that is away is asked again for `launch.retry_seconds`."""
        deadline = time.monotonic() + self._config.retry_seconds
        while True:
            try:
                return call()
            except TransientError as error:
                self._check_stopped()
                if time.monotonic() > deadline:
                    raise
                logger.warning("%s; asking again", error)
                self._pause()

    def _pause(self) -> None:
        """Wait until it is time to look again, or to stop."""
        end = time.monotonic() + self._config.poll_seconds
        while not self._is_stopped() and (left := end - time.monotonic()) > 0:
            # In short naps: the handler of SIGTERM only sets a flag, which a long sleep would not look at.
            time.sleep(min(left, SECONDS_TO_NOTICE))

    def delete(self) -> None:
        """Once, whoever asks first. Best effort: an error is logged, since another one is on its way."""
        with self._deletion:
            if not self._is_deleted:
                self._is_deleted = True
                self._delete()

    def _delete(self) -> None:
        logger.info("TrainJob %s: asking to delete it; Ctrl-C leaves it as it is", self._place)
        try:
            self._ask("cannot be deleted", lambda: self._client.delete_job(self._name))
            logger.info("TrainJob %s deleted", self._place)
        except MissingError:
            logger.info("TrainJob %s is not there", self._place)
        except LaunchError as error:
            logger.warning(
                "TrainJob %s: %s; remove it by hand: kubectl --namespace %s delete trainjob %s",
                self._place,
                error,
                *self._place.split("/"),
            )

    def _find(self) -> Any:
        """The job and its pods; None where there is none."""
        try:
            return self._get()
        except MissingError:
            return None

    def _get(self) -> Any:
        return self._ask(f"TrainJob {self._place} cannot be read", lambda: self._client.get_job(self._name))

    def _get_runtime(self) -> Any:
        name = self._config.runtime
        try:
            runtime = self._ask(
                f"launch.runtime={name} cannot be read", lambda: self._client.get_runtime(name)
            )
        except MissingError as error:
            raise LaunchError(
                f"launch.runtime={name}: neither a TrainingRuntime in {self._client.backend.namespace} nor a "
                "ClusterTrainingRuntime; `kubectl get clustertrainingruntimes` lists them"
            ) from error
        if runtime.trainer.framework != "torch":
            raise LaunchError(
                f"launch.runtime={name} is made for {runtime.trainer.framework}, not torchrun: use "
                "one of the framework torch, such as torch-distributed"
            )
        return runtime

    def _read(self) -> dict[str, Any]:
        """The job as the API server stores it."""
        from kubeflow.trainer.constants.constants import GROUP, TRAINJOB_PLURAL, VERSION

        backend = self._client.backend
        return self._ask(
            f"TrainJob {self._place} cannot be read",
            lambda: backend.custom_api.get_namespaced_custom_object(
                GROUP, VERSION, backend.namespace, TRAINJOB_PLURAL, self._name
            ),
        )

    def _check_patched(self) -> None:
        """An API server drops what its version does not know: here secrets, volumes and security context."""
        job = self._look(self._read)
        # The API answers 201 all the same: unknown fields are pruned without an error.
        if not job["spec"].get("runtimePatches"):
            self.delete()
            raise LaunchError(
                f"TrainJob {self._place}: the Kubeflow Trainer here knows no runtimePatches, so the job "
                "would have neither its secrets nor /dev/shm: install Trainer 2.2 or later, and its CRDs"
            )
        self._check_grace_period(job)

    def _check_grace_period(self, job: dict[str, Any]) -> None:
        """Trainer 2.2 drops it at once, and a Kueue that speaks 2.2 when the queue lets the job go."""
        wanted = grace_period(self._program)
        if kept_grace_period(job) == wanted:
            return
        self.delete()
        raise LaunchError(
            f"TrainJob {self._place}: its grace period of {wanted} s is gone. A Kubeflow Trainer older than "
            "2.3 drops it, and so does a Kueue that speaks an older Trainer when the job leaves the queue, "
            "after which no pod of it can start. Install Trainer 2.3 and a Kueue that speaks 2.3, or set "
            "storage.grace_seconds=25, which fits the usual 30 s"
        )

    def _replace(self) -> None:
        """Remove the ended job of this name, and wait until the name is free."""
        logger.info("TrainJob %s has ended before and is replaced", self._place)
        with suppress(MissingError):  # somebody else was quicker
            self._patiently(
                lambda: self._ask(
                    f"TrainJob {self._place} cannot be deleted", lambda: self._client.delete_job(self._name)
                )
            )
        deadline = time.monotonic() + SECONDS_TO_REPLACE
        while self._patiently(self._find) is not None:
            self._check_stopped()
            if time.monotonic() > deadline:
                raise LaunchError(
                    f"TrainJob {self._place} ended and does not go away; delete it by hand and start again"
                )
            time.sleep(min(self._config.poll_seconds, 1.0))

    def _failure(self, steps: list[Any], log: "_Log") -> LaunchError:
        failed = [step for step in steps if step.status == "Failed"]
        shown, lines = "no pod failed", list[str]()
        if failed:
            first = failed[0]
            shown = f"pod {first.pod_name} ({first.name}) failed"
            if len(failed) > 1:
                shown += f", and so did {', '.join(step.name for step in failed[1:])}"
            lines = self._read_all(lambda: self._client.get_job_logs(self._name, step=first.name))
        elif log.tail:  # a job whose containers were started again too often removes its pods
            shown, lines = "no failed pod is left", list(log.tail)
        if not lines:
            lines = self._read_all(
                lambda: [f"{e.reason}: {e.message}" for e in self._client.get_job_events(self._name)]
            )
        text = "".join(f"\n    {line}" for line in lines[-NUM_TAIL_LINES:]) or " (neither log nor events)"
        return LaunchError(
            f"TrainJob {self._place} failed: {shown}. Mend what its last lines name and start again with the "
            f"same arguments: it continues from its last checkpoint.{text}"
        )

    def _read_all(self, call: Callable[[], Any]) -> list[str]:
        try:
            return self._ask("cannot be read", lambda: [line for line in call() if line.strip()])
        except LaunchError as error:
            return [str(error)]

    def _ask(self, what: str, call: Callable[[], T]) -> T:
        """The result of a call of the SDK; its errors become ours."""
        return ask(self._client, what, call)


class _Log:
    """The first node's log, line by line into ours, while somebody else looks at the job."""

    def __init__(self, client: Any, name: str) -> None:
        self._client = client
        self._name = name
        self._pod: str | None = None
        self._first_line: str | None = None
        self._num_seen = 0
        self._thread: Thread | None = None
        self.tail: deque[str] = deque(maxlen=NUM_TAIL_LINES)
        """The last lines that were shown."""

    def follow(self, steps: list[Any]) -> None:
        """Begin, or begin again where the connection was cut, once there is something to read."""
        first = next((step for step in steps if step.name == "node-0" and step.status != "Pending"), None)
        if first is None or (self._thread is not None and self._thread.is_alive()):
            return
        if first.pod_name != self._pod:
            self._pod, self._num_seen = first.pod_name, 0
        # A daemon: reading a log can block for ever, which must not keep this process from ending.
        self._thread = Thread(target=self._read, name="log of node-0", daemon=True)
        self._thread.start()

    def finish(self, steps: list[Any]) -> None:
        """The job has ended: wait for the last lines, unless the pod itself goes on."""
        goes_on = any(step.name == "node-0" and step.status == "Running" for step in steps)
        if self._thread is not None and not goes_on:
            self._thread.join(SECONDS_TO_READ_LOG)

    def _read(self) -> None:
        try:
            # A connection that was cut starts again at the first line; those that were shown are counted
            # and skipped.
            for number, line in enumerate(self._client.get_job_logs(self._name, follow=True)):
                if number == 0 and line != self._first_line:  # of a container that was started again
                    self._first_line, self._num_seen = line, 0
                if number >= self._num_seen:
                    logger.info("node-0: %s", line)
                    self._num_seen = number + 1
                    self.tail.append(line)
        except Exception as error:  # a lost log does not end the run; the job's state counts
            logger.warning("the log of node-0 cannot be read: %s", error.__cause__ or error)
