"""The prepared process that runs are killed in, and what a run leaves behind."""

import json
import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from cooper_rl.checkpoints.logs import KINDS, METRICS, PAIRS, ROLLOUTS
from cooper_rl.checkpoints.reference import open_checkpoint
from cooper_rl.config.infrastructure import StorageConfig
from cooper_rl.records.step_metrics import read_metrics
from tests.stand_ins.fixtures import bucket, gateway, s3_server

__all__ = ["bucket", "gateway", "s3_server"]


class Outcome(NamedTuple):
    """Everything that two equal runs have in common."""

    numbers: list[dict[str, float]]
    """The metrics of every step without the timings."""
    sha256: dict[str, str]
    """Of both models, their optimisers and the state of the run."""
    logged: dict[str, list[str]]
    """The pairs and rollouts of every step."""


@dataclass
class Trainer:
    """Starts runs in forked children of one prepared process."""

    process: subprocess.Popen[str]
    folder: Path
    calls: int | None = field(default=None)

    def run(self, checkpoint: Path, *overrides: str, **job: Any) -> int:
        """Train; returns the exit status, negative for a signal."""
        arguments = {"checkpoint": str(checkpoint), "report": f"{checkpoint}.json"} | job.pop("arguments", {})
        return self._ask({"arguments": arguments, "overrides": overrides, **job})

    def fit(self, output: Path, *overrides: str, **job: Any) -> int:
        """Train VerifyRM into a folder; likewise."""
        arguments = {"verify_rm": f"{output}/verify_rm", "report": f"{output}/report.json"}
        arguments |= job.pop("arguments", {})
        return self._ask({"stage": "train_verify_rm", "arguments": arguments, "overrides": overrides, **job})

    def _ask(self, job: dict[str, Any]) -> int:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        self.calls = answer["calls"]
        return answer["status"]

    def log(self) -> str:
        """What the children wrote."""
        return (self.folder / "log").read_text(errors="replace")


@pytest.fixture(scope="session")
def trainer(tmp_path_factory: pytest.TempPathFactory) -> Generator[Trainer]:
    with start_trainer(tmp_path_factory.mktemp("trainer")) as started:
        yield started


@contextmanager
def start_trainer(folder: Path) -> Generator[Trainer]:
    """The prepared process, in a folder of its own that may have its inputs; it ends with the block."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.faults.kill_server", str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=Path(__file__).parents[2],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert process.stdout is not None
    # Libraries such as DeepSpeed print lines of their own when they are imported.
    assert "ready\n" in iter(process.stdout.readline, "")
    try:
        yield Trainer(process, folder)
    finally:
        process.kill()
        process.wait()


def outcome(checkpoint: Path, storage: StorageConfig | None = None) -> Outcome:
    """What a finished run left in its folder."""
    with open_checkpoint(checkpoint, storage or StorageConfig(), logs=KINDS) as found:
        rows = [row.flat() for row in read_metrics(*found.log[METRICS])]
        logged = {
            kind: [line for path in found.log[kind] for line in path.read_text("utf-8").split("\n") if line]
            for kind in (PAIRS, ROLLOUTS)
        }
    numbers = [{key: row[key] for key in row if not key.startswith("seconds/")} for row in rows]
    return Outcome(numbers, found.manifest.sha256, logged)


@pytest.fixture(scope="session")
def straight(trainer: Trainer, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """The run that nobody interrupts; it makes pairs, so that VerifyRM changes too."""
    return run_straight(trainer, tmp_path_factory.mktemp("straight") / "checkpoint")


def run_straight(trainer: Trainer, checkpoint: Path, *overrides: str) -> Outcome:
    assert trainer.run(checkpoint, *overrides, kill={"count": True}) == 0, trainer.log()
    result = outcome(checkpoint)
    assert all(row["pairs/count"] > 0 for row in result.numbers)
    assert len(result.numbers) == 3
    return result
