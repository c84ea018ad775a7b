"""Two of everything at once, as processes: one clear error, and what the other one wrote is whole.

The table is in docs/lab/reliability.md. A local pipeline, an experiment and the journals have tests of their
own beside their code.
"""

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from cooper_rl.checkpoints.logs import METRICS
from cooper_rl.checkpoints.reference import open_checkpoint
from cooper_rl.checkpoints.registry import Registry
from cooper_rl.config.infrastructure import StorageConfig
from cooper_rl.records.step_metrics import read_metrics
from cooper_rl.storage.local import LocalStore
from tests.faults.kill_server import OVERRIDES, prepare
from tests.faults.test_store_faults import overrides
from tests.stages.champions import make_candidate
from tests.stand_ins.fixtures import storage_config

ROOT = Path(__file__).parents[2]
NUM_STEPS = 30
STARTS = 240
"""Seconds that a process may take to start on a busy machine."""


class Pair(NamedTuple):
    """Two commands, and what must be true after both."""

    commands: list[list[str]]
    said: str
    """In the error of the one that lost."""
    check: Callable[[], None]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inputs")
    prepare(folder)
    return folder


def train(inputs: Path, checkpoint: Path, *more: str) -> list[str]:
    files = {name: inputs / name for name in ("models", "verify_rm")} | {
        "problems": inputs / "problems.jsonl"
    }
    paths = files | {"checkpoint": checkpoint, "report": checkpoint.with_suffix(".json")}
    settings = [*OVERRIDES, f"cooper.steps={NUM_STEPS}", *more]
    words = [word for name, path in paths.items() for word in (f"--{name.replace('_', '-')}", str(path))]
    return ["train-cooper", "--preset", "laptop", *words, *(w for each in settings for w in ("--set", each))]


def is_whole(checkpoint: Path, storage: StorageConfig) -> None:
    """Every step was logged once, and every file is as its manifest says."""
    with open_checkpoint(checkpoint, storage, logs=(METRICS,)) as found:
        steps = [row.step for row in read_metrics(*found.log[METRICS])]
    assert steps == list(range(1, NUM_STEPS + 1))


def same_output(inputs: Path, folder: Path, request: Any) -> Pair:
    command = train(inputs, folder / "checkpoint")
    return Pair(
        [command, command], "two runs use this", lambda: is_whole(folder / "checkpoint", StorageConfig())
    )


def same_run_key(inputs: Path, folder: Path, request: Any) -> Pair:
    server, bucket = request.getfixturevalue("s3_server"), request.getfixturevalue("bucket")
    config = storage_config(server.endpoint, bucket)
    commands = [train(inputs, folder / name, *overrides(config)) for name in ("one", "two")]

    def check() -> None:
        done = [name for name in ("one", "two") if (folder / name / "reference.json").is_file()]
        assert len(done) == 1
        is_whole(folder / done[0], config)

    return Pair(commands, "two runs use this", check)


@pytest.mark.slow
@pytest.mark.parametrize("make", [same_output, same_run_key])
def test_of_two_trainings_in_one_place_one_ends_with_one_error_and_the_other_is_whole(
    make: Callable[[Path, Path, Any], Pair], inputs: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    pair = make(inputs, tmp_path, request)
    started = [begin(command) for command in pair.commands]
    ended = [process.communicate(timeout=900) for process in started]
    statuses = [process.returncode for process in started]
    assert sorted(statuses) == [0, 2], ended
    error = ended[statuses.index(2)][1]
    assert pair.said in error.splitlines()[-1]
    assert "Traceback" not in error
    pair.check()


@pytest.mark.slow
def test_of_two_promotions_at_once_both_end_well_and_the_better_is_champion(
    make_policy: Any, make_verify_rm: Any, tmp_path: Path
) -> None:
    """The second sees that CHAMPION changed, and is compared with it: all eight right beat none."""
    commands: list[list[str]] = []
    for name, outcomes in (("worse", [0] * 8), ("better", [1] * 8)):
        model = make_policy(len(commands))
        paths = make_candidate(
            tmp_path / name, outcomes, policy=model, verify_rm=make_verify_rm(len(commands))
        )
        words = [word for key, path in paths.items() for word in (f"--{key.replace('_', '-')}", str(path))]
        registry = f"registry.uri={tmp_path / 'registry'}"
        commands.append(["promote", "--preset", "laptop", "--set", registry, *words])
    started = [begin(command) for command in commands]
    ended = [process.communicate(timeout=900) for process in started]
    assert [process.returncode for process in started] == [0, 0], ended
    registry = Registry(LocalStore(tmp_path / "registry"))
    champion = registry.champion()
    assert champion is not None
    assert champion.record.decision.accuracy.value == 1.0
    registry.fetch(champion, tmp_path / "fetched", starting_with=("",))


@pytest.mark.slow
@pytest.mark.parametrize("same", ["port", "state"])
def test_a_second_server_on_one_port_or_one_state_is_refused_and_the_first_answers(
    same: str, inputs: Path, tmp_path: Path
) -> None:
    ports = [free_port(), free_port()]
    if same == "port":
        ports[1] = ports[0]
        commands = [["serve-verify-rm", "--verify-rm", str(inputs / "verify_rm")] for _ in ports]
    else:
        learn = [
            "serve",
            "--learn",
            "--verify-rm",
            str(inputs / "verify_rm"),
            "--state",
            str(tmp_path / "state"),
        ]
        commands = [learn, learn]
    first, second = (
        [*command, "--set", f"port={port}"] for command, port in zip(commands, ports, strict=True)
    )
    running = begin(first)
    try:
        wait_until_ready(ports[0], running)
        late = begin(second)
        _, error = late.communicate(timeout=STARTS)
        assert late.returncode == 2, error
        place = f"port={ports[0]}" if same == "port" else str(tmp_path / "state")
        assert place in error.splitlines()[-1]
        assert "Traceback" not in error
        assert httpx.get(f"http://127.0.0.1:{ports[0]}/readyz").status_code == 200
    finally:
        running.send_signal(signal.SIGTERM)
        running.communicate(timeout=STARTS)
    assert running.returncode == 0


def begin(command: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "cooper_rl", *command],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def wait_until_ready(port: int, process: subprocess.Popen[str]) -> None:
    end = time.monotonic() + STARTS
    while time.monotonic() < end:
        assert process.poll() is None, process.communicate()
        try:
            if httpx.get(f"http://127.0.0.1:{port}/readyz").status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.2)
    raise AssertionError("the server was not ready in time")
