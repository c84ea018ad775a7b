"""`cooper-rl serve-verify-rm` as a process of its own, with a tiny VerifyRM of random weights."""

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

LOGS: dict[int, Path] = {}
"""Process id of a server -> the file with what it logs."""


@pytest.fixture(scope="module")
def serve(make_verify_rm, tmp_path_factory) -> Iterator[Callable[..., tuple[str, subprocess.Popen[str]]]]:
    """Starts it with settings, and a soft limit of open files; gives address and process once it is ready."""
    from cooper_rl.models.verify_rm import save_verify_rm

    started: list[subprocess.Popen[str]] = []
    folder = tmp_path_factory.mktemp("serve") / "rm"
    save_verify_rm(make_verify_rm(0), folder)

    def start(*overrides: str, open_files: int | None = None) -> tuple[str, subprocess.Popen[str]]:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        command = [sys.executable, "-m", "cooper_rl", "serve-verify-rm", "--verify-rm", str(folder)]
        for override in (f"port={port}", *overrides):
            command += ["--set", override]
        if open_files:
            command = ["sh", "-c", f'ulimit -S -n {open_files}; exec "$@"', "sh", *command]
        log = folder.parent / f"{port}.log"
        with log.open("w") as written:
            process = subprocess.Popen(command, stderr=written, text=True)
        started.append(process)
        LOGS[process.pid] = log
        scheme = "https" if any(override.startswith("tls_") for override in overrides) else "http"
        address = f"{scheme}://127.0.0.1:{port}"
        _wait_until_ready(address, process)
        return address, process

    yield start
    for process in started:
        process.send_signal(signal.SIGKILL)
        process.wait()


def _wait_until_ready(address: str, process: subprocess.Popen[str]) -> None:
    for _ in range(600):
        assert process.poll() is None, f"the server ended with {process.returncode}"
        try:
            if httpx.get(f"{address}/readyz", timeout=20, verify=False).status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.2)
    raise AssertionError("the server was not ready after two minutes")
