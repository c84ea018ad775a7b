"""Why tasks of a pipeline failed: one small object for each task and try, which the run's summary reads.

Kubeflow tells the exit task that a run failed, and not why (`taskFinalStatus` in KFP 2.17.0). A task that
fails therefore writes its message below `storage.uri`, under the name of its pod. Most tasks do not know
`run_key`: as an input it would keep them from Kubeflow's cache. The name of a pod begins with that of the
run's Argo workflow (`GeneratePodName` in Argo 4.0.5), and Kubeflow gives both: KFP_POD_NAME to every task,
the workflow's name to the exit task. Outside a cluster there is no such variable, and nothing is written.
"""

import itertools
import logging
import os
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime

from pydantic import ValidationError

from cooper_rl.config.infrastructure import StorageConfig
from cooper_rl.schema.runs import TaskFailure
from cooper_rl.storage.open import open_store

logger = logging.getLogger(__name__)

FOLDER = "_errors"
"""Below `storage.uri`, beside the runs: no run_key begins so."""
POD_NAME = "KFP_POD_NAME"
FUNCTION = "--function_to_execute"
"""KFP's executor is given the component's name after it."""
TIMEOUT_SECONDS = 10.0
NUM_SHOWN = 10


def keep_failure(storage: StorageConfig, message: str, *, arguments: Sequence[str]) -> None:
    """Store why this pod's task failed. Failing at it is a line in the log: the task has its own error.

    Args:
        storage: where; without `uri` nothing is stored.
        message: the reason, without anything that opens an address.
        arguments: of this process, which name the task.
    """
    pod = os.environ.get(POD_NAME)
    if storage.uri is None or not pod:
        return
    failure = TaskFailure(task=_name_of_task(arguments), message=message, failed_at=datetime.now(UTC))
    # A store that is away may be the very reason: a task does not wait for it once more.
    quick = {"retry_seconds": 0.0, "timeout_seconds": min(storage.timeout_seconds, TIMEOUT_SECONDS)}
    try:
        store = open_store(storage.model_copy(update=quick), f"{storage.uri.rstrip('/')}/{FOLDER}")
        key = f"{pod}.json"
        before = store.read(key)  # Argo may make a lost pod again, under its name
        store.write(key, failure.model_dump_json().encode(), replaces=before and before.tag)
    except Exception as error:
        logger.warning("the run's summary will not say why this task failed: %s", error)


def failures_of(storage: StorageConfig, workflow: str) -> list[TaskFailure]:
    """The messages that the tasks of a run left, oldest first; none where `storage.uri` is not set.

    Raises:
        StorageError: the store cannot be used.
    """
    if storage.uri is None:
        return []
    store = open_store(storage, f"{storage.uri.rstrip('/')}/{FOLDER}")
    found: list[TaskFailure] = []
    for key in store.keys(f"{workflow}-"):
        content = store.read(key)
        try:
            found += [TaskFailure.model_validate_json(content.data)] if content else []
        except ValidationError:
            logger.warning("%s/%s: is no failure of a task, and is left out", store.uri, key)
    return sorted(found, key=lambda failure: failure.failed_at)


def in_words(failures: Sequence[TaskFailure]) -> list[str]:
    """A line for each task and message, the one that happened last at the end; at most ten."""
    lines = [f"{failure.task}: {failure.message}" for failure in failures]
    times = Counter(lines)
    last = list(dict.fromkeys(reversed(lines)))[:NUM_SHOWN]
    return [line if times[line] == 1 else f"{line} ({times[line]} tries)" for line in reversed(last)]


def _name_of_task(arguments: Sequence[str]) -> str:
    """As the stage is named on the command line."""
    names = [name for word, name in itertools.pairwise(arguments) if word == FUNCTION]
    return names[-1].replace("_", "-") if names else "a task"
