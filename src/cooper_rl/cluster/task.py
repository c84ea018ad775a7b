"""The frame of a stage inside a pipeline's task: its configuration, and the reason of a failure.

Argo repeats a failed task without knowing why it failed, and KFP's launcher turns every exit status into 1.
Only the container's termination message gets through: Argo appends it to the node's message, which
`retryStrategy.expression` can read (read in the source of KFP 2.17.0 and Argo 4.0.5). `FINAL` in it means
that no further try can help; `manifests/components/kfp-tries/workflow-controller.yaml` looks for it.
`failures.py` keeps the message for the run's summary too.
"""

import json
import re
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from cooper_rl.addresses import addresses_in, redact_all, redact_output
from cooper_rl.cluster.failures import keep_failure
from cooper_rl.config.load import load
from cooper_rl.config.root import Config
from cooper_rl.errors import ConfigError, CooperError, DataError, HackingError

TERMINATION_LOG = Path("/dev/termination-log")
"""Kubernetes makes this file in every container and shows its content with the container's end."""
MAX_MESSAGE_BYTES = 4096
"""Kubernetes cuts off what is longer."""
FINAL = "cooper-rl: no further try can help:"
AGAIN = "cooper-rl:"
MOUNTED = re.compile(r"^/(?:s3|minio|gcs)/\S+: no such ")
"""KFP's launcher has the inputs of a task there."""
CACHE_ADVICE = (
    "; if an earlier run wrote it and it was removed from the store since, Kubeflow's cache names it still: "
    "run `python -m pipelines submit` with --no-cache"
)
MISTAKES = (ConfigError, DataError, HackingError)
"""The same inputs fail the same way again; any other error may pass (store, hub, server, node, GPU)."""


@contextmanager
def task(
    preset: str,
    overrides: Sequence[str],
    *,
    run_key: str = "",
    run_id: str = "",
    termination_log: Path = TERMINATION_LOG,
) -> Generator[Config]:
    """The task's configuration; an error in the block becomes the container's termination message.

    Args:
        preset: Name of a preset, or path of a .toml file.
        overrides: Changes to it. Those that set storage.run_key win over the two names below.
        run_key: Name that a person gave the run's checkpoints; empty: `run_id` is their name.
        run_id: Kubeflow's id of the run, the same in every task and in every try.
        termination_log: Where Kubernetes looks; nothing is written where there is no such file.

    Raises:
        ConfigError: the configuration is not valid.
    """
    # Kubernetes keeps the log, and Kubeflow shows it to all who see the run.
    known = list(addresses_in(list(overrides)))
    redact_output(*known)
    config: Config | None = None
    try:
        config = load(preset, with_run_key(overrides, run_key=run_key, run_id=run_id))
        known += addresses_in(config.model_dump(mode="json"))  # those of the preset too
        redact_output(*known)
        yield config
    except Exception as error:
        message = _in_words(error, known)
        _tell(termination_log, FINAL if isinstance(error, MISTAKES) else AGAIN, message)
        if config is not None:
            keep_failure(config.storage, message, arguments=sys.argv)
        if isinstance(error, MISTAKES):
            # The message says it all, and frames would bury it in the log that the dashboard shows.
            raise error.with_traceback(None) from None
        raise


def with_run_key(overrides: Sequence[str], *, run_key: str, run_id: str) -> list[str]:
    """The overrides, after one that names the run's checkpoints where there is a name."""
    name = run_key or run_id
    return [*([f"storage.run_key={json.dumps(name)}"] if name else []), *overrides]


def _in_words(error: Exception, known: Sequence[str]) -> str:
    # Our own messages are sentences; the class of any other error is half of what it says.
    text = str(error) if isinstance(error, CooperError) else f"{type(error).__name__}: {error}"
    text += CACHE_ADVICE if MOUNTED.search(text) else ""
    encoded = redact_all(text, *known).encode(errors="replace")
    return encoded[:MAX_MESSAGE_BYTES].decode(errors="ignore")


def _tell(place: Path, begin: str, message: str) -> None:
    try:
        if place.exists():
            # Half a character would not be UTF-8, in which Kubernetes keeps a pod's status.
            cut = f"{begin} {message}".encode()[:MAX_MESSAGE_BYTES].decode(errors="ignore")
            place.write_text(cut, encoding="utf-8")
    except OSError:
        pass  # the log has the message too
