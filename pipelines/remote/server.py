"""The KFP API server, reached with a time-out. A failure is one sentence with its remedy.

Everything goes through the real `kfp.Client`. `pipelines/remote/submit.py` and `pipelines/remote/schedule.py`
ask it.
"""

import contextlib
import io
import json
import logging
import os
import re
import warnings
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import kfp
import kfp_server_api
import urllib3
from kfp_server_api.exceptions import ApiException

from cooper_rl.errors import ConfigError, ServerError
from cooper_rl.schema.texts import in_one_line
from cooper_rl.waiting import Waiting

logger = logging.getLogger(__name__)

TOKEN_ENV = "KFP_TOKEN"
HOST_ENV = "KF_PIPELINES_ENDPOINT"

GATEWAY_KNOWS_NO_ISSUER = "Jwt issuer is not configured"
"""Envoy's answer to a token of an issuer that no RequestAuthentication names: a new token would not help."""


@dataclass(frozen=True)
class Place:
    """A server, and the place on it."""

    host: str
    namespace: str | None
    """None on an installation for a single user."""
    token_file: Path | None = None
    """None: the environment variable KFP_TOKEN, if it is set."""
    ca_bundle: Path | None = None
    timeout_seconds: float = 30.0

    def token(self) -> str | None:
        """The bearer token; read anew each time, since tokens are short-lived.

        Raises:
            ConfigError: the file cannot be read or is empty, or what is given is no token.
        """
        if self.token_file is None:
            place, text = f"${TOKEN_ENV}", os.environ.get(TOKEN_ENV, "").strip()
        else:
            place, text = f"--token-file {self.token_file}", self._read_token(self.token_file)
        if not (text.isascii() and text.isprintable()):
            raise ConfigError(f"{place}: is no bearer token; write it in one line")
        return text or None

    def _read_token(self, file: Path) -> str:
        try:
            text = file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "not UTF-8"
            raise ConfigError(f"--token-file {file}: {reason}; give a readable file") from error
        if not text:
            raise ConfigError(f"--token-file {file}: is empty; write the bearer token into it")
        return text


class Client(kfp.Client):
    """kfp's client without its five tries at the health check, each of which prints a traceback, and without
    the four of urllib3, which would take four time-outs."""

    def __init__(self, timeout_seconds: float, **options: Any) -> None:
        self._timeout = (timeout_seconds, timeout_seconds)
        super().__init__(**options)  # looks at the server's health

    def _load_config(self, *arguments: Any, **options: Any) -> Any:
        config: Any = super()._load_config(*arguments, **options)
        # A redirect would turn what is sent into a question, and Retry-After may name hours.
        config.retries = urllib3.Retry(
            connect=0, read=0, redirect=0, raise_on_redirect=False, respect_retry_after_header=False
        )
        return config

    def get_kfp_healthz(self, sleep_duration: int = 5) -> Any:
        found = self._healthz_api.healthz_service_get_healthz(_request_timeout=self._timeout)
        _check_answer(self._healthz_api.api_client)
        return found


class Server:
    """One API server."""

    def __init__(self, place: Place) -> None:
        self.place = place
        logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)  # we say it when all tries failed
        self._waiting = Waiting(
            place.host, logger, limit=f"--timeout-seconds {place.timeout_seconds:g}, Ctrl-C ends it"
        )
        with self.explained("connect"), warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # kfp says on each start which servers it needs
            client = Client(
                place.timeout_seconds,
                host=place.host,
                namespace=place.namespace or "kubeflow",
                existing_token=place.token(),
                ssl_ca_cert=None if place.ca_bundle is None else str(place.ca_bundle),
            )
        api_client = client._run_api.api_client  # pyright: ignore[reportPrivateUsage] kfp offers no other way
        self.pipelines: Any = kfp_server_api.PipelineServiceApi(api_client)
        self.client: Any = client
        _limit(api_client, place.timeout_seconds)

    def renew_token(self) -> None:
        """Take the token from its file again, where there is one."""
        if token := self.place.token():
            self.client._run_api.api_client.configuration.api_key["authorization"] = token

    @contextlib.contextmanager
    def explained(self, what: str) -> Generator[None]:
        """Turns every failure of the block into one sentence; what kfp prints goes nowhere.

        Raises:
            ServerError: the server cannot be reached, refused, or failed.
        """
        try:
            with self._waiting.asked(), contextlib.redirect_stdout(io.StringIO()):
                yield
        except ApiException as error:
            raise ServerError(self._explain(what, error)) from error
        except (urllib3.exceptions.HTTPError, OSError, TimeoutError, UnicodeDecodeError) as error:
            raise ServerError(
                f"{self.place.host}: cannot {what}: {_cause(error)}; check --host, that the server is up and "
                "reachable from here (kubectl port-forward svc/ml-pipeline-ui 8080:80), and --ca-bundle"
            ) from error
        except (AttributeError, KeyError, TypeError, ValueError) as error:  # kfp's client read another answer
            raise ServerError(
                f"{self.place.host}: cannot {what}: kfp cannot use the answer ({in_one_line(error)[:300]}); "
                "check --host, and that the server's KFP is 2.x"
            ) from error

    def id_of(self, made: Any, name: str) -> str:
        """The id of what the server says that it made.

        Raises:
            ServerError: it has none.
        """
        found = getattr(made, name, None)
        if not found:
            raise _no_kfp(self.place.host, f"without {name}")
        return in_one_line(found)

    def link(self, *parts: str) -> str:
        """An address in the dashboard."""
        return f"{self.place.host.rstrip('/')}/#/{'/'.join(parts)}"

    def _explain(self, what: str, error: ApiException) -> str:
        status = int(error.status or 0)
        who = f"{self.place.host}: cannot {what}"
        if status == 0:  # of kfp's client, which could not read the answer
            return f"{who}: {_message(error)}; check --host, --ca-bundle, and that the server's KFP is 2.x"
        if 300 <= status < 400:
            target = in_one_line((error.headers or {}).get("Location") or "nowhere")
            return (
                f"{who}: {status}, a redirect to {target[:300]}; give the address it leads to as --host, or, "
                "if it leads to a page to log in, a token (--token-file)"
            )
        if status in (401, 403) and GATEWAY_KNOWS_NO_ISSUER in str(error.body):
            return (
                f"{who}: {status}, the gateway refuses the cluster's tokens: {_message(error)}; install "
                "oauth2-proxy as m2m-dex-and-kind with your cluster's issuer, or go past the gateway "
                "(kubectl port-forward svc/ml-pipeline-ui 8080:80, --host http://localhost:8080)"
            )
        if status in (401, 403):
            where = f"--token-file {self.place.token_file}" if self.place.token_file else f"${TOKEN_ENV}"
            has = "is not accepted" if self.place.token() else "is not set"
            word = f"the token ({where}) {has}" if status == 401 else "access is denied"
            namespace = self.place.namespace or "(none given: --namespace)"
            return (
                f"{who}: {status}, {word}: {_message(error)}; get a new token (kubectl create token), and "
                f"check that its account may use namespace {namespace}"
            )
        if status == 404:
            return (
                f"{who}: 404, not found; check --host (the dashboard's address, with /pipeline on Kubeflow) "
                f"and that the API is v2: {_message(error)}"
            )
        if status == 409:
            return f"{who}: 409, it exists already with other content: {_message(error)}; choose another name"
        if status >= 500:
            return f"{who}: the server failed ({status}): {_message(error)}; try again, then read its log"
        return f"{who}: {status}: {_message(error)}"


def is_status(error: BaseException | None, status: int) -> bool:
    """True if a failure came from an answer with this status."""
    return isinstance(error, ApiException) and error.status == status


def _limit(api_client: Any, seconds: float) -> None:
    """kfp waits for ever: give every call a time-out."""
    call: Callable[..., Any] = api_client.call_api

    def call_with_limit(*arguments: Any, **options: Any) -> Any:
        if options.get("_request_timeout") is None:
            options["_request_timeout"] = (seconds, seconds)  # it passes over a lone float
        found = call(*arguments, **options)
        _check_answer(api_client)
        return found

    api_client.call_api = call_with_limit


def _check_answer(api_client: Any) -> None:
    """kfp's client takes whatever is no JSON object for an object without content."""
    answer = api_client.last_response
    if (answer.getheader("content-type") or "").startswith("text/html"):
        raise ServerError(
            f"{api_client.configuration.host}: answers with a web page, perhaps to log in; check "
            "--host, and get a new token (kubectl create token)"
        )
    try:
        is_object = isinstance(json.loads(answer.data), dict)
    except (ValueError, RecursionError):
        is_object = False
    if not is_object:
        raise _no_kfp(api_client.configuration.host, f"with {str(answer.data)[:100]!r}")


def _no_kfp(host: str, how: str) -> ServerError:
    return ServerError(f"{host}: answers as no KFP API server does, {how}; check --host")


def _message(error: ApiException) -> str:
    """The server's message, quoted: a terminal would obey some characters."""
    try:
        found = json.loads(error.body or "")
        text = found.get("message") or found.get("error") or found.get("error_message")
    except (TypeError, ValueError, AttributeError, RecursionError):
        text = error.body or error.reason
    return repr(" ".join(str(text).split())[:300]) if text else "no reason given"


def _cause(error: BaseException) -> str:
    if isinstance(error, urllib3.exceptions.MaxRetryError) and error.reason is not None:
        error = error.reason
    is_refused = isinstance(error, urllib3.exceptions.NewConnectionError)  # to urllib3 a time-out too
    if isinstance(error, urllib3.exceptions.TimeoutError) and not is_refused:
        return "no answer in time"
    if isinstance(error, urllib3.exceptions.ProtocolError | urllib3.exceptions.IncompleteRead):
        return "the connection ended before the whole answer was there"
    if isinstance(error, urllib3.exceptions.DecodeError):
        return "its answer cannot be decompressed"
    return in_one_line(re.sub(r"\[(Errno \d+|SSL: \w+)\] ", "", str(error)).rpartition(": ")[2][:200])
