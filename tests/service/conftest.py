"""A server of rewards as a process of its own, which may be killed."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from cooper_rl.models.verify_rm import save_verify_rm

ROOT = Path(__file__).parent.parent.parent


class Server:
    """One server at a time, on a port of its own."""

    def __init__(self, verify_rm: Path) -> None:
        self.verify_rm = verify_rm
        self._factory = subprocess.Popen(
            [sys.executable, "-m", "tests.service.kill_service", str(verify_rm)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._read() == "ready"
        self.url = ""
        self.process = 0

    def start(self, state: Path, kill: dict[str, Any]) -> bool:
        """Whether it got ready, which it need not when it is killed."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self._write({"state": str(state), "port": port, "kill": kill})
        self.url, self.process = f"http://127.0.0.1:{port}", self._read()
        for _ in range(600):
            try:
                if httpx.get(f"{self.url}/readyz", timeout=60).status_code == 200:
                    return True
            except httpx.TransportError:
                if not Path(f"/proc/{self.process}").exists():
                    return False
            time.sleep(0.05)
        raise AssertionError("the server was not ready in time")

    def post(self, body: dict[str, Any], *, run: str = "run") -> dict[str, Any]:
        answer = httpx.post(f"{self.url}/v1/runs/{run}/rewards", json=body, timeout=120)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def wait(self) -> int:
        """The status that it ended with."""
        status = self._read()
        self.process = 0
        return status

    def stop(self) -> int:
        os.kill(self.process, signal.SIGTERM)
        return self.wait()

    def close(self) -> None:
        if self.process:
            os.kill(self.process, signal.SIGKILL)
        assert self._factory.stdin is not None
        self._factory.stdin.close()
        self._factory.wait()

    def _write(self, job: dict[str, Any]) -> None:
        assert self._factory.stdin is not None
        self._factory.stdin.write(json.dumps(job) + "\n")
        self._factory.stdin.flush()

    def _read(self) -> Any:
        assert self._factory.stdout is not None
        return json.loads(self._factory.stdout.readline())


@pytest.fixture(scope="module")
def server(make_verify_rm, tmp_path_factory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("service") / "verify_rm"
    save_verify_rm(make_verify_rm(0), folder)
    server = Server(folder)
    yield server
    server.close()
