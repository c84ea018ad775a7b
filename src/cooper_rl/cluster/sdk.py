"""The `kubeflow` SDK's client and its errors, for `cluster/launch.py` and `cluster/leftovers.py`."""

import json
import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, TypeVar

from cooper_rl.config.infrastructure import LaunchConfig
from cooper_rl.errors import ConfigError, LaunchError, how_to_install
from cooper_rl.outgoing import CONNECT_SECONDS
from cooper_rl.schema.texts import in_one_line
from cooper_rl.waiting import Waiting

logger = logging.getLogger(__name__)

T = TypeVar("T")

RBAC = "manifests/base/runs/rbac.yaml"


SILENCE_SECONDS = 60.0
"""Of one request; the SDK has no setting for it."""


class TransientError(LaunchError):
    """The API server is away or overloaded; asking again may help."""


class MissingError(LaunchError):
    """The object that was asked for is not there."""


class ConflictError(LaunchError):
    """The object that was to be made is there already."""


class UnknownKindError(LaunchError):
    """The API server has no objects of the kind that was asked for: their CRD is missing.

    One that starts says 503 until it knows its CRDs, since Kubernetes 1.23 (kubernetes/kubernetes
    apiextensions-apiserver/pkg/apiserver/apiserver.go at 01d2b61).
    """


def connect(config: LaunchConfig, *, silence_seconds: float | None = None) -> Any:
    """The SDK's client, typed Any because the SDK is an extra.

    Args:
        config: The namespace of the jobs.
        silence_seconds: The longest time that the API server may say nothing; None: SILENCE_SECONDS.

    Raises:
        ConfigError: it is not installed.
        LaunchError: no cluster is configured, or its configuration cannot be used.
    """
    try:
        from kubeflow.common.types import KubernetesBackendConfig
        from kubeflow.trainer import TrainerClient
        from kubeflow.trainer.backends.kubernetes.backend import KubernetesBackend
        from kubernetes.config import ConfigException
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"launch.kind=trainjob: {error}; install the SDK: {how_to_install('trainjob')}"
        ) from error

    class Backend(KubernetesBackend):
        def verify_backend(self) -> None:
            """Do not ask for the Trainer's version: nobody needs it, and the answer may take minutes."""

    class Client(TrainerClient):
        def __init__(self) -> None:
            self.backend = Backend(KubernetesBackendConfig(namespace=config.namespace))

    logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)  # what fails is said below
    try:
        with _time_limits(SILENCE_SECONDS if silence_seconds is None else silence_seconds):
            return Client()
    except ConfigException as error:
        raise LaunchError(
            f"launch.kind=trainjob: no cluster to start it on ({error}); set KUBECONFIG, or run in a pod "
            f"with a service account that {RBAC} names"
        ) from error
    except Exception as error:  # of YAML, of a file that is missing or unreadable
        reason = in_one_line(f"{type(error).__name__}: {error}")[:300]
        raise LaunchError(
            f"launch.kind=trainjob: the way to a cluster cannot be read ({reason}); mend the file that "
            "KUBECONFIG names, or the service account's files in this pod"
        ) from error


@contextmanager
def _time_limits(silence_seconds: float) -> Generator[None]:
    """Clients of Kubernetes that are made in the block have time limits, and repeat a request once.

    They would wait for ever, and without a word, for an API server that takes a connection and says nothing.
    A log that is followed may be silent.
    """
    from kubernetes.client import rest
    from urllib3 import Retry

    class LimitedRest(rest.RESTClientObject):
        def __init__(self, configuration: Any, **options: Any) -> None:
            super().__init__(configuration, **options)
            self.pool_manager.connection_pool_kw["retries"] = Retry(1)
            self._waiting = Waiting(configuration.host, logger, limit=f"two tries of {silence_seconds:g} s")

        def request(self, *arguments: Any, **options: Any) -> Any:
            if not options.get("_preload_content", True):
                return super().request(*arguments, **options)
            if options.get("_request_timeout") is None:
                options["_request_timeout"] = (min(CONNECT_SECONDS, silence_seconds), silence_seconds)
            with self._waiting.asked():
                return super().request(*arguments, **options)

    given, rest.RESTClientObject = rest.RESTClientObject, LimitedRest
    try:
        yield
    finally:
        rest.RESTClientObject = given


def ask(client: Any, what: str, call: Callable[[], T]) -> T:
    """The result of a call of the SDK.

    Args:
        client: The SDK's.
        what: What failed, if it fails.
        call: Asks the cluster.

    Raises:
        LaunchError: the cluster refuses (MissingError: the object is not there; ConflictError: it is there;
            UnknownKindError: there are no such objects) or does not answer (TransientError).
    """
    try:
        return call()
    except Exception as error:
        host = client.backend.core_api.api_client.configuration.host
        raise _explain(what, error, host) from error


def _explain(what: str, error: Exception, host: str) -> LaunchError:
    """An error of the SDK as ours; the SDK says what it did, and only the cause why it failed."""
    from kubernetes.client import ApiException
    from urllib3.exceptions import HTTPError, MaxRetryError

    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, (ApiException, HTTPError)):
        cause = cause.__cause__
    if isinstance(cause, ApiException) and cause.status:
        said = _message(cause)
        if cause.status == 404 and said is None:
            return UnknownKindError(
                f"{what}: the API server {host} knows no such kind of object; install Kubeflow Trainer 2.2 "
                "or later, and its CRDs"
            )
        said = said or str(cause.reason)
        if cause.status == 404:
            return MissingError(f"{what}: {said}")
        if cause.status == 401:
            return LaunchError(
                f"{what}: the API server {host} does not accept this process's token ({said}), which may "
                "have expired; log in again, or let the pod have its service account's token"
            )
        if cause.status == 403:
            return LaunchError(
                f"{what}: {said}; allow it to the account of this process: {RBAC} has the roles and bindings"
            )
        kind = TransientError if cause.status >= 500 or cause.status == 429 else LaunchError
        kind = ConflictError if cause.status == 409 else kind
        return kind(f"{what}: the API server says {cause.status}, {said}")
    if isinstance(cause, MaxRetryError):
        cause = cause.reason  # the rest is the address, with its query
    if cause is not None or isinstance(error, TimeoutError):
        return TransientError(
            f"{what}: the API server {host} does not answer ({cause or error}); is the address right, and do "
            "network policies let this process reach it?"
        )
    reason = in_one_line(f"{error} ({type(error.__cause__).__name__}: {error.__cause__})")[:300]
    return LaunchError(f"{what}: {reason}; is {host} the API server of a cluster?")


def _message(error: Any) -> str | None:
    """The API server's message, without headers and what a terminal would obey; None where there is none, as
    for an address it has not."""
    try:
        return in_one_line(json.loads(error.body)["message"])[:1000]
    except (TypeError, ValueError, KeyError):
        return None
