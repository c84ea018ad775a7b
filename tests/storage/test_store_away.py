"""An object store that is away: what is said, and that Ctrl-C ends the wait for it."""

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from cooper_rl.errors import StorageError
from cooper_rl.storage.open import open_store
from tests.stand_ins.fixtures import storage_config
from tests.stand_ins.serving import saying_nothing, serving

ROOT = Path(__file__).parent.parent.parent
SUMS = f"{'0' * 64}  config.json\n{'1' * 64}  model.safetensors\n".encode()
asked_for_a_piece = threading.Event()


class Stalled(BaseHTTPRequestHandler):
    """Gives the list of a model and the sizes of its files, and no byte of these."""

    def do_HEAD(self) -> None:
        self._begin(500_000_000)

    def do_GET(self) -> None:
        if "Range" in self.headers:
            asked_for_a_piece.set()
            self.rfile.read(1)  # until the client is gone
            return
        self._begin(len(SUMS))
        self.wfile.write(SUMS)

    def _begin(self, size: int) -> None:
        self.send_response(200)
        self.send_header("etag", '"tag"')
        self.send_header("content-length", str(size))
        self.end_headers()

    def log_message(self, format: str, *_: object) -> None:
        pass


@pytest.fixture(autouse=True)
def some_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a-secret")


@pytest.fixture
def stalled() -> Generator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Stalled)
    server.daemon_threads = True
    with serving(server) as url:
        yield url


def test_a_store_that_refuses_connections_is_named_at_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    config = storage_config("http://127.0.0.1:9", "bucket", retry_seconds=0.5)
    with pytest.raises(StorageError, match=r"after trying for 0\.5 s"):
        open_store(config, config.uri or "").read("x")
    (said,) = caplog.messages
    assert said.startswith("http://127.0.0.1:9, for s3://bucket: NewConnectionError")
    assert said.endswith("Connection refused; asking again (storage.retry_seconds=0.5)")


@pytest.mark.usefixtures("impatient")
def test_a_store_that_says_nothing_is_named_after_a_while(caplog: pytest.LogCaptureFixture) -> None:
    with saying_nothing() as url:
        config = storage_config(url, "bucket", retry_seconds=0, timeout_seconds=0.5)
        with pytest.raises(StorageError, match="Read timed out"):
            open_store(config, config.uri or "").read("x")
    assert f"{url}, for s3://bucket: no good answer for 0 s; waiting (storage.retry_seconds=0)" in caplog.text


def test_ctrl_c_ends_a_transfer_that_stalls(stalled: str, tmp_path: Path) -> None:
    """The pieces are fetched by threads, which wait for a minute and then try for five."""
    command = [sys.executable, "-m", "cooper_rl.storage.models", "--uri", "s3://bucket/model"]
    command += ["--folder", str(tmp_path / "model"), "--endpoint", stalled]
    asked_for_a_piece.clear()
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        assert asked_for_a_piece.wait(60)
        os.kill(process.pid, signal.SIGINT)
        try:
            _, said = process.communicate(timeout=20)
        finally:
            process.kill()
    assert process.returncode == 130
    assert said == "\nfetch_model: interrupted; start again with the same arguments\n"
    assert list((tmp_path / "model").iterdir()) == []
