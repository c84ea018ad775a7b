"""Servers of rewards: one in this process, and one as a process of its own, which may be killed."""

import asyncio
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from cooper_rl.config.load import load_learn
from cooper_rl.models.verify_rm import save_verify_rm
from cooper_rl.schema.data import VerifyExample
from cooper_rl.service.http import make_app
from tests.service.service_world import SETTINGS, start_of

Talk = Callable[[httpx.AsyncClient], Awaitable[Any]]
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
        self._http = httpx.Client(timeout=120)  # one: making a client costs more than a request
        self.url = ""
        self.process = 0

    def start(self, state: Path, kill: dict[str, Any], *settings: str) -> bool:
        """Whether it got ready, which it need not when it is killed."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self._write({"state": str(state), "port": port, "kill": kill, "settings": settings})
        self.url, self.process = f"http://127.0.0.1:{port}", self._read()
        for _ in range(600):
            try:
                if self._http.get(f"{self.url}/readyz").status_code == 200:
                    return True
            except httpx.TransportError:
                if not Path(f"/proc/{self.process}").exists():
                    return False
            time.sleep(0.05)
        raise AssertionError("the server was not ready in time")

    def post(self, body: dict[str, Any]) -> dict[str, Any]:
        answer = self.ask(body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def ask(self, body: dict[str, Any]) -> httpx.Response:
        return self._http.post(f"{self.url}/v1/runs/run/rewards", json=body)

    def describe(self) -> dict[str, Any]:
        """Its one run."""
        return self._http.get(f"{self.url}/v1/runs").json()[0]

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
        self._http.close()

    def _write(self, job: dict[str, Any]) -> None:
        assert self._factory.stdin is not None
        self._factory.stdin.write(json.dumps(job) + "\n")
        self._factory.stdin.flush()

    def _read(self) -> Any:
        assert self._factory.stdout is not None
        return json.loads(self._factory.stdout.readline())


@pytest.fixture(scope="module")
def server(verify_rm: Path) -> Iterator[Server]:
    server = Server(verify_rm)
    yield server
    server.close()


def scored_by_verifiers(task: Any, text: str) -> float:
    """The reward that verifiers' own code takes from a task for a completion."""
    trace = importlib.import_module("verifiers.v1.trace")
    found = trace.Trace(
        task=trace.TraceTask(type=type(task).__name__, data=task.data),
        agent=trace.AgentInfo.model_construct(config=None),
        root_reply=text,
    )
    asyncio.run(task.score(found))
    return found.reward


@pytest.fixture(scope="module")
def verify_rm(make_verify_rm, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("start") / "verify_rm"
    save_verify_rm(make_verify_rm(0), folder)
    return folder


@pytest.fixture
def visit(verify_rm: Path, tmp_path: Path) -> Callable[..., Any]:
    """Talks to the app from its start to its shutdown; several times, it is one server that starts again."""

    def talk_to(talk: Talk, *settings: str, held_out: Sequence[VerifyExample] = ()) -> Any:
        async def run() -> Any:
            start = start_of(verify_rm, tmp_path / "state", *settings, held_out=held_out)
            app = make_app(start, load_learn([*SETTINGS, *settings]))
            async with app.router.lifespan_context(app):
                transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
                async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
                    while (await client.get("/readyz")).status_code != 200:
                        await asyncio.sleep(0.02)
                    found = await talk(client)
            assert not app.state.is_stuck
            return found

        return asyncio.run(run())

    return talk_to
