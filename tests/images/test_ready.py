"""The health check of the images that serve, against a server with TLS and one without."""

import runpy
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.servers.test_serve_protected import make_certificate
from tests.stand_ins.serving import serving

SCRIPT = Path(__file__).parent.parent.parent / "images" / "ready"


class Answering(BaseHTTPRequestHandler):
    status = 200

    def do_GET(self) -> None:
        self.send_response(self.status if self.path == "/readyz" else 404)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None: ...


@contextmanager
def answering(status: int, context: ssl.SSLContext | None) -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Answer", (Answering,), {"status": status}))
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    with serving(server):
        yield server.server_port


def check(port: int) -> int:
    text = SCRIPT.read_text(encoding="utf-8")
    assert '("127.0.0.1", 8080)' in text
    program = text.replace('("127.0.0.1", 8080)', f'("127.0.0.1", {port})')
    return subprocess.run([sys.executable, "-c", program], timeout=30, check=False).returncode


@pytest.mark.parametrize("has_tls", [False, True])
@pytest.mark.parametrize(("status", "expected"), [(200, 0), (503, 1)])
def test_a_server_is_healthy_when_it_is_ready_with_tls_and_without(
    tmp_path: Path, has_tls: bool, status: int, expected: int
) -> None:
    context = None
    if has_tls:
        make_certificate(tmp_path / "tls.crt", tmp_path / "tls.key")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
    with answering(status, context) as port:
        assert check(port) == expected


def test_a_port_on_which_nobody_listens_is_not_healthy() -> None:
    with answering(200, None) as port:
        pass
    assert check(port) == 1


def test_its_port_is_the_one_that_the_server_listens_on_and_fits_into_the_engines_patience() -> None:
    from cooper_rl.config.serve import ServeConfig

    found = runpy.run_path(str(SCRIPT))
    assert found["PLACE"][1] == ServeConfig().port
    assert 2 * found["SECONDS"] < 5
