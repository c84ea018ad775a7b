"""The scoring server as a real process among clients that are slow, gone, greedy or not allowed."""

import asyncio
import json
import re
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Callable
from contextlib import closing, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import psutil
import pytest
from pydantic import ValidationError

from cooper_rl.__main__ import main
from cooper_rl.config.serve import ServeConfig
from cooper_rl.errors import ConfigError
from cooper_rl.servers.listening import check_address, check_files
from cooper_rl.servers.verify_rm_http import make_app
from tests.stand_ins.verify_rm import LOGS

ITEM = {"question": "Tom has 7 apples.", "reference_answer": "7", "completion": "The answer is 7."}
TOKEN, OTHER = "one-token-of-24-letters", "another-token-after-that"
ALLOWED = {"authorization": f"Bearer {TOKEN}"}


class Server(NamedTuple):
    url: str
    port: int
    log: Path
    tokens: Path

    def post(self, num_items: int = 1, headers: dict[str, str] = ALLOWED) -> httpx.Response:
        return httpx.post(
            f"{self.url}/v1/score", json={"items": [ITEM] * num_items}, headers=headers, timeout=60
        )

    def metric(self, name: str) -> float:
        text = httpx.get(f"{self.url}/metrics", headers=ALLOWED, timeout=60).text
        found = re.search(rf"^{re.escape(name)} (\S+)$", text, flags=re.MULTILINE)
        return float(found[1]) if found else 0.0

    def send(self, content: bytes) -> socket.socket:
        client = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        client.sendall(content)
        return client


@pytest.fixture(scope="module")
def server(serve: Any, tmp_path_factory: pytest.TempPathFactory) -> Server:
    tokens = tmp_path_factory.mktemp("secret") / "token"
    tokens.write_text(f"{TOKEN}\n")
    url, process = serve(
        f"token_file={tokens}",
        "request_seconds=2",
        "max_tokens_per_request=400",
        "max_body_bytes=200000",
        "max_buffered_bytes=300000",
        "max_header_bytes=4000",
    )
    return Server(url, int(url.rpartition(":")[2]), LOGS[process.pid], tokens)


@pytest.fixture(autouse=True)
def no_traceback(request: pytest.FixtureRequest) -> Any:
    """Nothing that a client does is a traceback in the log."""
    yield
    if "server" in request.fixturenames:
        assert "Traceback" not in request.getfixturevalue("server").log.read_text()


def wait_for(is_so: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


def head(length: int, *, path: str = "/v1/score") -> bytes:
    lines = [
        f"POST {path} HTTP/1.1",
        "host: server",
        f"content-length: {length}",
        "content-type: application/json",
    ]
    return "\r\n".join([*lines, f"authorization: Bearer {TOKEN}", "", ""]).encode()


def test_only_who_has_a_token_is_answered_and_health_needs_none(server: Server) -> None:
    assert server.post().status_code == 200
    for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": f"Basic {TOKEN}"}):
        refused = server.post(headers=headers)
        assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
        assert refused.json()["detail"] == "give a valid token: Authorization: Bearer TOKEN"
    for path, status in {"/healthz": 200, "/readyz": 200, "/metrics": 401, "/openapi.json": 401}.items():
        assert httpx.get(server.url + path, timeout=60).status_code == status
    assert server.metric('verify_rm_rejected_total{reason="token"}') >= 3


def test_a_token_is_changed_while_the_server_runs_and_a_lost_file_lets_nobody_in(server: Server) -> None:
    server.tokens.write_text(f"{TOKEN}\n{OTHER}\n")
    assert server.post(headers={"authorization": f"Bearer {OTHER}"}).status_code == 200
    server.tokens.write_text("")
    assert server.post().status_code == 401
    server.tokens.write_text(f"{TOKEN}\n")
    assert server.post(headers={"authorization": f"Bearer {OTHER}"}).status_code == 401
    assert server.post().status_code == 200


def test_a_request_with_too_many_tokens_is_refused(server: Server) -> None:
    refused = server.post(50)
    assert refused.status_code == 413
    assert re.search(r"the items have \d+ tokens and may have 400; send fewer items", refused.text)
    assert server.metric('verify_rm_rejected_total{reason="tokens"}') == 1


def test_a_header_over_the_limit_is_refused_also_where_it_came_whole(server: Server) -> None:
    refused = server.post(headers=ALLOWED | {"x-filler": "x" * 5000})
    assert (refused.status_code, refused.json()["detail"]) == (
        431, "the header is over 4000 bytes; send less of it"
    )  # fmt: skip


def test_slow_connections_are_closed_and_others_answered_meanwhile(server: Server) -> None:
    """Nothing, half a header, half a body; each is closed after request_seconds=2."""
    before = server.metric('verify_rm_aborted_total{while_it="sent"}')
    started = time.monotonic()
    slow = [server.send(content) for content in (b"", b"POST /v1/sc", head(1000) + b'{"items": ')]
    assert server.post().status_code == 200
    for client in slow:
        with closing(client), suppress(ConnectionResetError):
            assert client.recv(1000) == b""
    assert time.monotonic() - started > 1.9
    wait_for(lambda: server.metric('verify_rm_aborted_total{while_it="sent"}') == before + 3)


def test_connections_that_say_nothing_are_bounded_and_use_up_no_files(serve: Any) -> None:
    """Under a limit of 200 open files, which the server raises: 300 connections are more than twice 100."""
    url, process = serve("max_connections=100", "request_seconds=60", open_files=200)
    place = ("127.0.0.1", int(url.rpartition(":")[2]))
    silent = [socket.create_connection(place, timeout=60) for _ in range(300)]
    wait_for(
        lambda: len(psutil.Process(process.pid).net_connections("tcp")) == 201
    )  # and the one that listens
    for client in silent[:150]:
        client.close()
    wait_for(lambda: httpx.get(f"{url}/healthz", timeout=60).status_code == 200)
    assert (
        'verify_rm_rejected_total{reason="connections"} 100.0' in httpx.get(f"{url}/metrics", timeout=60).text
    )
    assert "out of system resource" not in LOGS[process.pid].read_text()
    for client in silent[150:]:
        client.close()


HEALTH = b"GET /healthz HTTP/1.1\r\nhost: server\r\n\r\n"


@pytest.mark.parametrize(
    "begin",
    [b"", b"POST /v1/score HTTP/1.1\r\nx: ", head(1000), HEALTH + b"GET /healthz HTTP/1.1\r\nx: "],
    ids=["request line", "header", "body", "header of a second request"],
)
def test_a_trickle_does_not_extend_the_time_for_a_request(server: Server, begin: bytes) -> None:
    started = time.monotonic()
    with closing(server.send(begin)) as client, suppress(ConnectionResetError, BrokenPipeError):
        for _ in range(300):
            client.sendall(b"y")
            time.sleep(0.1)
    assert time.monotonic() - started < 20


def test_a_header_over_its_limit_is_refused(server: Server) -> None:
    with closing(server.send(b"GET /healthz HTTP/1.1\r\nx: " + b"y" * 10_000)) as client:
        assert client.recv(1000).startswith(b"HTTP/1.1 400 ")


def test_an_aborted_upload_is_counted(server: Server) -> None:
    before = server.metric('verify_rm_aborted_total{while_it="sent"}')
    server.send(head(1000) + b'{"items": ').close()
    wait_for(lambda: server.metric('verify_rm_aborted_total{while_it="sent"}') == before + 1)


def test_bodies_under_way_are_limited_together(server: Server) -> None:
    """Two of 180 kB are more than the 300 kB for all: the second is told to come again, and a third may."""
    part = head(190_000) + b" " * 180_000
    with closing(server.send(part)) as first, closing(server.send(part)) as second:
        first.settimeout(30)
        second.settimeout(30)
        answers = []
        for client in (first, second):
            with suppress(ConnectionResetError):
                answers.append(client.recv(12))
    assert b"HTTP/1.1 429" in answers
    wait_for(lambda: server.post().status_code == 200)


def test_bodies_that_wait_for_a_batch_are_limited_together(make_verify_rm: Any) -> None:
    """Of 20 requests of 100 kB, the three that 350 kB have room for wait; the budget is free again after."""
    item = {"question": "q" * 50_000, "reference_answer": "2", "completion": "c" * 50_000}
    config = ServeConfig(max_body_bytes=200_000, max_buffered_bytes=350_000, max_wait_seconds=0)

    async def run() -> tuple[list[int], int]:
        app = make_app(make_verify_rm(0), config, name="rm")
        scored = asyncio.Event()
        score = app.state.batcher.submit

        async def stuck(*arguments: Any) -> Any:
            await scored.wait()
            return await score(*arguments)

        app.state.batcher.submit = stuck
        await app.state.batcher.start()
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://server", timeout=60) as client:
            sent = [asyncio.create_task(client.post("/v1/score", json={"items": [item]})) for _ in range(20)]
            while sum(each.done() for each in sent) < 17:
                await asyncio.sleep(0.01)
            scored.set()
            answers = await asyncio.gather(*sent)
            after = await client.post("/v1/score", json={"items": [item]})
        await app.state.batcher.close()
        return sorted(answer.status_code for answer in answers), after.status_code

    assert asyncio.run(run()) == ([200] * 3 + [429] * 17, 200)


@pytest.mark.parametrize(
    "content",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /v1/score HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\nnonsense\r\n",
        head(300_000) + b" " * 250_000 + b"\r\nnot http",
    ],
)
def test_what_is_no_http_is_refused_without_a_traceback(server: Server, content: bytes) -> None:
    with closing(server.send(content)) as client, suppress(ConnectionResetError):
        assert client.recv(12) in {b"HTTP/1.1 400", b"HTTP/1.1 401", b"HTTP/1.1 413"}


def test_the_access_log_is_json_without_texts_and_tokens(server: Server) -> None:
    assert server.post().status_code == 200
    deadline = time.monotonic() + 10
    # The answer may be here before the whole of its line is in the log.
    while not (text := server.log.read_text()).endswith("}\n") and time.monotonic() < deadline:
        time.sleep(0.01)
    assert TOKEN not in text
    assert "apples" not in text
    lines = [json.loads(line[line.index("{") :]) for line in text.splitlines() if '"path"' in line]
    scored = [line for line in lines if line["path"] == "/v1/score" and line["status"] == 200][-1]
    assert set(scored) == {
        "client", "method", "path", "status", "seconds", "bytes", "items", "tokens", "queue_seconds"
    }  # fmt: skip
    assert (scored["client"], scored["items"]) == ("127.0.0.1", 1)
    assert scored["tokens"] > 10


@pytest.mark.slow
def test_what_a_client_that_went_away_asked_for_is_not_scored(serve: Any) -> None:
    """The first of a batch waits three seconds for company, and is gone by then."""
    url, process = serve("max_wait_seconds=3")
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{url}/v1/score", json={"items": [ITEM] * 50}, timeout=0.7)
    metrics = httpx.get(f"{url}/metrics", timeout=60).text
    assert "verify_rm_waiting_items 0.0" in metrics
    assert 'verify_rm_aborted_total{while_it="waited"} 1.0' in metrics
    answer = httpx.post(f"{url}/v1/score", json={"items": [ITEM]}, timeout=60)
    assert answer.status_code == 200
    metrics = httpx.get(f"{url}/metrics", timeout=60).text
    assert "verify_rm_batch_items_sum 2.0" in metrics  # the first score of all, and the one
    assert "Traceback" not in LOGS[process.pid].read_text()


def test_the_server_ends_within_its_grace_period_whatever_hangs(serve: Any) -> None:
    """Two hundred connections with half a header or half a body each, of clients that never go on."""
    url, process = serve("request_seconds=600", "grace_seconds=5")
    port = int(url.rpartition(":")[2])
    clients = [socket.create_connection(("127.0.0.1", port), timeout=60) for _ in range(200)]
    for number, client in enumerate(clients):
        client.sendall(b"POST /v1/sc" if number % 2 else head(1000) + b"{")
    time.sleep(0.5)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 0
    for client in clients:
        client.close()
    log = LOGS[process.pid].read_text()
    assert "Traceback" not in log
    begun, ended = (
        datetime.strptime(re.findall(rf"^(\S+) {words}", log, flags=re.MULTILINE)[0], "%H:%M:%S")
        for words in ("Shutting down", "Finished server process")
    )
    assert (ended - begun).total_seconds() <= 5  # what the interpreter's own end takes comes after it


def test_tls_is_spoken_with_a_certificate_of_ones_own(serve: Any, tmp_path: Path) -> None:
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    make_certificate(certificate, key)
    url, _ = serve(f"tls_certificate={certificate}", f"tls_key={key}")
    trusting = ssl.create_default_context(cafile=certificate)
    assert httpx.get(f"{url}/healthz", verify=trusting, timeout=60).text == "ok"
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/healthz", timeout=60)


def make_certificate(certificate: Path, key: Path) -> None:
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=localhost",
    ]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-out", str(certificate), "-keyout", str(key)]
    subprocess.run(command, check=True, capture_output=True)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"host": "0.0.0.0"},
            "host=0.0.0.0 answers other machines, and everybody may ask: set token_file=FILE",
        ),
        ({"host": "::", "unprotected": ("token",)}, "host=:: answers other machines without TLS"),
        ({"host": "rewards.local", "token_file": "token"}, "answers other machines without TLS"),
        ({"tls_key": "key"}, "tls_certificate and tls_key belong together"),
        ({"max_buffered_bytes": 10}, "max_buffered_bytes=10 holds no body of max_body_bytes=16000000"),
    ],
)
def test_an_address_that_others_reach_needs_protection_unless_told(
    settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValidationError, match=re.escape(message)):
        ServeConfig.model_validate(settings)


def test_what_protects_is_found_before_the_model_answers(tmp_path: Path) -> None:
    short = tmp_path / "short"
    short.write_text("secret")
    with pytest.raises(ConfigError, match="needs tokens of at least 16 characters, one a line") as found:
        check_files(ServeConfig(token_file=short))
    assert "secret" not in str(found.value).replace(str(tmp_path), "")
    with pytest.raises(ConfigError, match=r"token_file=.*none: cannot be read \(No such file"):
        check_files(ServeConfig(token_file=tmp_path / "none"))
    with pytest.raises(
        ConfigError, match=r"tls_certificate=.*cannot be used \(.*PEM files that belong together"
    ):
        check_files(ServeConfig(tls_certificate=short, tls_key=short))
    for host in ("127.0.0.2", "localhost", "::1"):
        ServeConfig(host=host)
    ServeConfig(host="0.0.0.0", unprotected=("token", "tls"))


def test_other_machines_are_never_answered_by_mistake(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve-verify-rm", "--verify-rm", str(tmp_path), "--set", "host=0.0.0.0"]) == 2
    assert "host=0.0.0.0 answers other machines, and everybody may ask" in capsys.readouterr().err


def test_a_second_server_on_the_same_port_is_refused_and_the_first_answers(server: Server) -> None:
    with pytest.raises(
        ConfigError, match=rf"host=127.0.0.1, port={server.port}: cannot be listened on \(Address"
    ):
        check_address(ServeConfig(port=server.port))
    assert server.post().status_code == 200
    check_address(ServeConfig(port=0))


def test_health_fails_where_a_batch_takes_for_ever(make_verify_rm: Any) -> None:
    async def run() -> httpx.Response:
        app = make_app(make_verify_rm(0), ServeConfig(stuck_seconds=0.1), name="rm")
        app.state.batcher._batch_started = time.monotonic() - 1
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
            return await client.get("/healthz")

    answer = asyncio.run(run())
    assert (answer.status_code, answer.text) == (503, "stuck")
