"""`cooper-rl serve --learn` as a real process with a token and TLS, among clients that have neither."""

import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from cooper_rl import RewardClient
from cooper_rl.__main__ import main
from cooper_rl.errors import ServerError
from tests.servers.test_serve_protected import make_certificate
from tests.service.service_world import SETTINGS, items

TOKEN, OTHER = "one-token-of-24-letters", "another-token-after-that"
ALLOWED = {"authorization": f"Bearer {TOKEN}"}
BODY = {"request_id": "one", "items": items(1)}


class Server(NamedTuple):
    port: int
    certificate: Path
    tokens: Path
    log: Path

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    @property
    def http(self) -> httpx.Client:
        return httpx.Client(
            base_url=self.url, verify=ssl.create_default_context(cafile=self.certificate), timeout=60
        )

    def client(self, url: str | None = None, *, run: str = "run", token: str | None = TOKEN) -> RewardClient:
        return RewardClient(
            url or self.url, run=run, token=token, certificates=self.certificate, retry_seconds=0
        )

    def runs(self) -> list[str]:
        return [row["run"] for row in self.http.get("/v1/runs", headers=ALLOWED).json()]


@pytest.fixture(scope="module")
def server(verify_rm: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("secret")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    found = Server(port, folder / "tls.crt", folder / "token", folder / "log")
    make_certificate(found.certificate, folder / "tls.key")
    found.tokens.write_text(f"{TOKEN}\n")
    settings = (
        f"port={port}",
        f"token_file={found.tokens}",
        f"tls_certificate={found.certificate}",
        f"tls_key={folder / 'tls.key'}",
        *SETTINGS,
    )
    command = [
        *(sys.executable, "-m", "cooper_rl", "serve", "--learn"),
        *("--verify-rm", str(verify_rm), "--state", str(folder / "state")),
        *(word for setting in settings for word in ("--set", setting)),
    ]
    with found.log.open("w") as log:
        process = subprocess.Popen(command, stderr=log, text=True)
    wait_until_ready(found, process)
    yield found
    idle = found.http
    assert idle.get("/readyz").status_code == 200
    process.send_signal(signal.SIGTERM)
    # Over TLS a connection is closed when both say so, and an idle client says nothing.
    assert process.wait(timeout=15) == 0
    idle.close()
    assert "Traceback" not in found.log.read_text()
    assert TOKEN not in found.log.read_text()


def wait_until_ready(server: Server, process: subprocess.Popen[str]) -> None:
    for _ in range(600):
        assert process.poll() is None, server.log.read_text()
        try:
            if server.http.get("/readyz").status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.1)
    raise AssertionError("the server was not ready in a minute")


def ask(client: RewardClient, start: int) -> list[float]:
    batch = items(start)
    try:
        return client(
            [item["completion"] for item in batch],
            questions=[item["question"] for item in batch],
            reference_answers=[item["reference_answer"] for item in batch],
            group_ids=[item["group"] for item in batch],
        )
    finally:
        client.close()


def test_a_server_that_learns_answers_no_other_machine_without_token_and_tls(
    verify_rm: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is written before the refusal."""
    state, tokens = tmp_path / "state", tmp_path / "token"
    tokens.write_text(TOKEN)
    command = ["serve", "--learn", "--verify-rm", str(verify_rm), "--state", str(state)]
    command += ["--set", "host=0.0.0.0"]
    assert main(command) == 2
    assert "host=0.0.0.0 answers other machines, and everybody may ask: set token_file=FILE" in (
        capsys.readouterr().err
    )
    assert main([*command, "--set", f"token_file={tokens}"]) == 2
    assert "host=0.0.0.0 answers other machines without TLS" in capsys.readouterr().err
    tokens.write_text("short")
    assert main([*command, "--set", f"token_file={tokens}", "--set", 'unprotected=["tls"]']) == 2
    assert "needs tokens of at least 16 characters, one a line" in capsys.readouterr().err
    assert not state.exists()


def test_rewards_are_learned_over_tls_with_the_token(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the client's arguments, and by the variables that the workers of trainers get."""
    assert all(0 < reward < 1 for reward in ask(server.client(), 1))
    for name, value in {
        "URL": server.url,
        "RUN": "run",
        "TOKEN_FILE": str(server.tokens),
        "CERTIFICATES": str(server.certificate),
    }.items():
        monkeypatch.setenv(f"COOPER_REWARD_{name}", value)
    assert all(0 < reward < 1 for reward in ask(RewardClient.from_environment(), 2))
    (run,) = (row for row in server.http.get("/v1/runs", headers=ALLOWED).json() if row["run"] == "run")
    assert run["step"] in (1, 2)  # the second answer is sent before its step is learned


@pytest.mark.parametrize("token", [None, "wrong-token-of-24-letters"])
def test_whoever_has_no_token_is_refused_and_begins_no_run(server: Server, token: str | None) -> None:
    with pytest.raises(
        ServerError, match=r"/v1/runs/stolen/rewards: refused the request with HTTP 401: .*valid token"
    ):
        ask(server.client(run="stolen", token=token), 1)
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    with server.http as http:
        asked = [
            http.post("/v1/runs/stolen/rewards", json=BODY, headers=headers),
            http.post("/v1/runs/stolen/openrlhf", json={}, headers=headers),
            *(http.get(path, headers=headers) for path in ("/v1/runs", "/metrics", "/openapi.json")),
        ]
        opened = [http.get(path) for path in ("/healthz", "/readyz")]
    assert {(answer.status_code, answer.headers["www-authenticate"]) for answer in asked} == {(401, "Bearer")}
    assert [answer.status_code for answer in opened] == [200, 200]
    assert "stolen" not in server.runs()


def test_a_token_is_changed_while_runs_go_on(server: Server) -> None:
    ask(server.client(run="rotated"), 1)
    server.tokens.write_text(f"{TOKEN}\n{OTHER}\n")
    ask(server.client(run="rotated", token=OTHER), 2)
    server.tokens.write_text(f"{OTHER}\n")
    with pytest.raises(ServerError, match="refused the request with HTTP 401"):
        ask(server.client(run="rotated"), 3)
    server.tokens.write_text(f"{TOKEN}\n")
    assert "rotated" in server.runs()


def test_a_client_that_does_not_trust_the_certificate_sends_nothing(server: Server) -> None:
    """It says so at once, although it asks a server that is away again for half an hour."""
    client = RewardClient(server.url, run="distrusted", token=TOKEN)
    began = time.monotonic()
    with pytest.raises(ServerError, match=r"its certificate is not trusted \(.*\); give certificates=FILE"):
        ask(client, 1)
    assert time.monotonic() - began < 30
    assert "distrusted" not in server.runs()


def test_a_plain_request_to_the_tls_port_fails_cleanly(server: Server) -> None:
    """The connection is closed without an answer, at once, and others are answered as before."""
    began = time.monotonic()
    with pytest.raises(
        ServerError, match=r"http://127.0.0.1:\d+/v1/runs/plain/rewards: no answer in retry_seconds=0"
    ):
        ask(server.client(f"http://127.0.0.1:{server.port}", run="plain"), 1)
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as raw:
        raw.sendall(b"GET /readyz HTTP/1.1\r\nhost: server\r\n\r\n")
        answer = raw.recv(1000)
    assert b"HTTP" not in answer
    assert time.monotonic() - began < 10
    assert "plain" not in server.runs()
    assert all(0 < reward < 1 for reward in ask(server.client(), 3))
