"""A server that speaks as much of KFP's REST API (v2beta1) as submitting and scheduling need.

Uploads, pipelines, versions, experiments, runs and recurring runs, with filters and pages, kept in memory. A
run goes one state further each time somebody looks at it. Faults are put in front of it by path.
"""

import json
import re
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.parser import BytesParser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

from tests.stand_ins.serving import serving

ROOT = "/apis/v2beta1"


@dataclass
class Fault:
    """What happens to the next requests of a method whose path starts so."""

    method: str
    path: str
    status: int
    """0: the server says nothing until the client gives up."""
    times: int = 1
    message: str = "injected"
    is_late: bool = False
    """The request is carried out, and only its answer is this."""
    kind: str = "application/json"
    """Of the answer's content."""
    body: str | None = None
    """The answer's content; None: an error with the message."""
    headers: dict[str, str] = field(default_factory=dict)
    """More headers of the answer."""
    num_missing: int = 0
    """Bytes of the content that are promised and not sent."""


@dataclass
class KfpApi:
    """What the server knows."""

    token: str | None = None
    namespace: str | None = None
    """The only one on a Kubeflow for many users, which refuses experiments and lists without it."""
    url: str = ""
    page_size: int = 100
    pipelines: dict[str, dict[str, Any]] = field(default_factory=dict)
    versions: dict[str, dict[str, Any]] = field(default_factory=dict)
    experiments: dict[str, dict[str, Any]] = field(default_factory=dict)
    runs: dict[str, dict[str, Any]] = field(default_factory=dict)
    recurring: dict[str, dict[str, Any]] = field(default_factory=dict)
    lost: dict[str, int] = field(default_factory=dict)
    """Recurring runs that the database knows and the cluster does not -> status of the answer (500: there is
    no ScheduledWorkflow; 404: one of that name has another UID, which `disable` does not look at)."""
    requests: list[tuple[str, str]] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    meanwhile: list[tuple[str, str, Callable[[], object]]] = field(default_factory=list)
    """What somebody else does before the next request of a method and path is handled."""
    script: list[dict[str, Any]] = field(default_factory=list)
    """What the next looks at a run show; the last one stays."""
    num_made: int = 0
    clock: Callable[[int], int] = field(default=int)
    """The second in which the object of a number is made."""

    def made(self, prefix: str) -> str:
        self.num_made += 1
        return f"{prefix}-{self.num_made}"

    def count(self, method: str, path: str) -> int:
        """How often a path was asked for."""
        return sum(found == (method, f"{ROOT}{path}") for found in self.requests)


def time_of(number: int) -> str:
    """When the object of this number was made: one each second."""
    return f"{datetime(2026, 11, 21, tzinfo=UTC) + timedelta(seconds=number):%Y-%m-%dT%H:%M:%SZ}"


class Answer(Exception):  # noqa: N818 - an answer, not always an error
    """Ends the handling of a request."""

    def __init__(
        self,
        status: int,
        body: dict[str, Any] | str,
        kind: str = "application/json",
        headers: dict[str, str] | None = None,
        num_missing: int = 0,
    ) -> None:
        super().__init__(status)
        self.status, self.body, self.kind = status, body, kind
        self.headers, self.num_missing = headers or {}, num_missing


@contextmanager
def run_kfp_api(api: KfpApi) -> Generator[KfpApi]:
    """The server for the length of the block."""

    class Handler(_Handler):
        state = api

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    with serving(server) as api.url:
        yield api


class _Handler(BaseHTTPRequestHandler):
    state: KfpApi

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._answer("GET")

    def do_POST(self) -> None:
        self._answer("POST")

    def do_DELETE(self) -> None:
        self._answer("DELETE")

    def _answer(self, method: str) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        self.state.requests.append((method, parts.path))
        try:
            self._break(method, parts.path, is_late=False)
            self._authorise()
            for each in list(self.state.meanwhile):
                if each[:2] == (method, parts.path.removeprefix(ROOT)):
                    self.state.meanwhile.remove(each)
                    each[2]()
            answer = Answer(200, self._handle(method, parts.path.removeprefix(ROOT), query, body))
            self._break(method, parts.path, is_late=True)
        except Answer as found:
            answer = found
        data = (answer.body if isinstance(answer.body, str) else json.dumps(answer.body)).encode()
        with suppress(BrokenPipeError, ConnectionResetError):  # the client gave up
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.kind)
            self.send_header("Content-Length", str(len(data) + answer.num_missing))
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

    def _break(self, method: str, path: str, *, is_late: bool) -> None:
        for fault in self.state.faults:
            if fault.is_late != is_late:
                continue
            if fault.times and fault.method == method and path.startswith(ROOT + fault.path):
                fault.times -= 1
                if fault.status == 0:
                    time.sleep(3)
                said = {"error": fault.message, "code": 13, "message": fault.message}
                raise Answer(
                    fault.status or 504,
                    said if fault.body is None else fault.body,
                    fault.kind,
                    fault.headers,
                    fault.num_missing,
                )

    def _authorise(self) -> None:
        if self.state.token and self.headers.get("Authorization") != f"Bearer {self.state.token}":
            raise Answer(401, {"message": "Unauthenticated"})

    def _handle(self, method: str, path: str, query: dict[str, str], body: bytes) -> dict[str, Any]:
        state = self.state
        if (method, path) == ("GET", "/healthz"):
            return {"multi_user": state.namespace is not None}
        if (method, path) == ("POST", "/pipelines/upload_version"):
            return self._upload_version(query, body)
        if method == "GET" and (match := re.fullmatch(r"/pipelines/([^/]+)/versions", path)):
            rows = [v for v in state.versions.values() if v["pipeline_id"] == match[1]]
            return self._page("pipeline_versions", rows, query)
        for name, table, key in (
            ("pipelines", state.pipelines, "pipeline_id"),
            ("experiments", state.experiments, "experiment_id"),
            ("runs", state.runs, "run_id"),
            ("recurringruns", state.recurring, "recurring_run_id"),
        ):
            if path == f"/{name}" and method == "GET":
                if name == "experiments" or (name != "pipelines" and "experiment_id" not in query):
                    self._check_namespace(query)
                elif name == "runs" and state.namespace and query["experiment_id"] not in state.experiments:
                    raise Answer(404, {"message": "error fetching namespace for experiment: not found"})
                return self._page(
                    {"recurringruns": "recurringRuns"}.get(name, name), list(table.values()), query
                )
            if path == f"/{name}" and method == "POST":
                return self._create(name, table, key, json.loads(body))
            if match := re.fullmatch(rf"/{name}/([^/:]+)(?::(\w+))?", path):
                return self._one(method, name, table, match[1], match[2])
        raise Answer(404, {"message": f"no such path: {path}"})

    def _upload_version(self, query: dict[str, str], body: bytes) -> dict[str, Any]:
        message = BytesParser().parsebytes(
            b"Content-Type: " + self.headers["Content-Type"].encode() + b"\r\n\r\n" + body
        )
        part = message.get_payload()[0]
        specification = next(yaml.safe_load_all(part.get_payload(decode=True)))
        assert specification["schemaVersion"] == "2.1.0"
        if query["pipelineid"] not in self.state.pipelines:
            raise Answer(404, {"message": "no such pipeline"})
        if any(v["display_name"] == query["name"] for v in self.state.versions.values()):
            raise Answer(409, {"message": f"version {query['name']} exists"})
        version_id = self.state.made("version")
        self.state.versions[version_id] = {
            "pipeline_id": query["pipelineid"],
            "pipeline_version_id": version_id,
            "display_name": query["name"],
        }
        return self.state.versions[version_id]

    def _check_namespace(self, given: dict[str, Any]) -> None:
        """Pipelines may be everybody's, and the namespace of a run is that of its experiment."""
        if self.state.namespace is not None and given.get("namespace") != self.state.namespace:
            raise Answer(400, {"message": "Invalid input error: In multi-user mode, name the namespace"})

    def _create(
        self, name: str, table: dict[str, dict[str, Any]], key: str, values: dict[str, Any]
    ) -> dict[str, Any]:
        if name in ("pipelines", "experiments") and any(
            row["display_name"] == values["display_name"] for row in table.values()
        ):
            raise Answer(409, {"message": f"{values['display_name']} exists"})
        if name == "experiments":
            self._check_namespace(values)
        if name in ("runs", "recurringruns"):
            reference = values["pipeline_version_reference"]
            if reference["pipeline_version_id"] not in self.state.versions:
                raise Answer(404, {"message": "no such version"})
        row = values | {key: self.state.made(name)}
        if name == "recurringruns":  # numbers of 64 bits are text in this API
            row["max_concurrency"] = str(row["max_concurrency"])
            row["created_at"] = time_of(self.state.clock(self.state.num_made))
        if name == "runs":
            row["state"] = "PENDING"
        table[row[key]] = row
        return row

    def _one(
        self, method: str, name: str, table: dict[str, dict[str, Any]], identity: str, verb: str | None
    ) -> dict[str, Any]:
        if identity not in table:
            raise Answer(404, {"message": f"{name} {identity} not found"})
        if method == "DELETE":
            del table[identity]
            return {}
        if verb == "terminate":
            if table[identity]["state"] not in ("PENDING", "RUNNING", "PAUSED"):
                raise Answer(400, {"message": f"Failed to terminate a run {identity}. Row not found"})
            table[identity]["state"] = "CANCELING"
            return {}
        if verb in ("enable", "disable"):
            self._find_scheduled_workflow(identity, verb)
            table[identity]["mode"] = verb.upper()
            return {}
        if name == "runs" and self.state.script:
            table[identity] |= (
                self.state.script.pop(0) if len(self.state.script) > 1 else self.state.script[0]
            )
        return table[identity]

    def _find_scheduled_workflow(self, identity: str, verb: str) -> None:
        """As `ResourceManager.ChangeJobMode` of KFP 2.17 does."""
        status = self.state.lost.get(identity)
        change = f"Failed to change recurring run's {identity} mode to enable:{verb == 'enable'}"
        if status == 500:
            gone = 'scheduledworkflows.kubeflow.org "verifyrmx7k2p" not found'
            raise Answer(500, {"error": f"InternalServerError: {change}: {gone}", "code": 13})
        if status == 404 and verb == "enable":
            raise Answer(
                404, {"error": f"{change}: ResourceNotFoundError: recurring run not found", "code": 5}
            )

    def _page(self, name: str, rows: list[dict[str, Any]], query: dict[str, str]) -> dict[str, Any]:
        for predicate in json.loads(query.get("filter") or "{}").get("predicates", []):
            rows = [row for row in rows if row[predicate["key"]] == predicate["stringValue"]]
        start = int(query.get("page_token") or 0)
        size = min(int(query.get("page_size") or 10), self.state.page_size)
        answer: dict[str, Any] = {name: rows[start : start + size]}
        if start + size < len(rows):
            answer["next_page_token"] = str(start + size)
        return answer
