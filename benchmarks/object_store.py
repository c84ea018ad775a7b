"""What checkpoints cost: transfers against the plain minio client, what steps pay for them, resuming.

    python -m benchmarks.object_store transfers --size-mb 1000
    python -m benchmarks.object_store steps --models DIR --verify-rm DIR --problems FILE

Both need Ceph's gateway. Transfers: the plain client; the plain client and then sha256 of the file, which its
users need to know that they got what was stored; and ours, which verifies. They take turns, each in its own
process, whose peak memory is measured too. Steps: runs of the laptop preset with a checkpoint every so many
steps and runs with one at the end, in turn; they do the same arithmetic, so what differs is the price. The
inputs are what prepare-models, train-verify-rm and collect-problems wrote, for example in `make demo`.
"""

import argparse
import json
import logging
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cooper_rl.records.written import file_sha256
from cooper_rl.storage.base import content_sha256
from cooper_rl.storage.open import open_store
from tests.stand_ins.fixtures import make_client, storage_config
from tests.stand_ins.radosgw import Account, Gateway, run_gateway, why_missing

BUCKET = "benchmark"
KINDS = ("plain", "checked", "ours")


def main() -> None:
    """Run one benchmark and show its numbers."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    transfers = commands.add_parser("transfers")
    transfers.add_argument("--size-mb", type=int, default=1000)
    transfers.add_argument("--rounds", type=int, default=3)
    steps = commands.add_parser("steps")
    for name in ("--models", "--verify-rm", "--problems"):
        steps.add_argument(name, type=Path, required=True)
    steps.add_argument("--steps", type=int, default=30)
    steps.add_argument("--every", type=int, default=10)
    steps.add_argument("--rounds", type=int, default=3)
    child = commands.add_parser("child")
    child.add_argument("details", type=json.loads)
    options = parser.parse_args()
    level = logging.WARNING if options.command == "child" else logging.INFO
    logging.basicConfig(level=level, format="%(message)s")
    if options.command == "child":
        action = train_once if "steps" in options.details else transfer_once
        sys.stdout.write(json.dumps(action(**options.details)))
        return
    reason = why_missing()
    if reason:
        sys.exit(reason)
    with tempfile.TemporaryDirectory(prefix="rgw-") as folder:
        # Room for both kinds, the garbage of one more, and what the server itself needs.
        memory_mb = 4 * options.size_mb + 1000 if options.command == "transfers" else 4000
        with run_gateway(Path(folder) / "server", memory_mb=memory_mb) as gateway:
            make_client(gateway.port, gateway.account).make_bucket(BUCKET)
            if options.command == "transfers":
                measure_transfers(gateway, Path(folder), options.size_mb, options.rounds)
            else:
                inputs = {name: str(getattr(options, name)) for name in ("models", "verify_rm", "problems")}
                measure_steps(gateway, inputs, options.steps, options.every, options.rounds)


def measure_transfers(gateway: Gateway, folder: Path, size_mb: int, rounds: int) -> None:
    """MB/s and CPU seconds up and down, and peak memory, of every kind, in turn."""
    path = folder / "checkpoint"
    _write_random(path, size_mb)
    results: dict[str, list[dict[str, float]]] = {kind: [] for kind in KINDS}
    for number in range(rounds):
        for kind in KINDS if number % 2 == 0 else KINDS[::-1]:
            row = _run_child(gateway, kind=kind, path=str(path))
            results[kind].append(row)
            logging.info("round %d %-7s %s", number + 1, kind, row)
    for name in ("up", "down"):
        speeds = {kind: [size_mb / row[f"{name}_wall"] for row in rows] for kind, rows in results.items()}
        for peer in KINDS[:-1]:
            ratios = [ours / plain for ours, plain in zip(speeds["ours"], speeds[peer], strict=True)]
            median = statistics.median(ratios)
            logging.info("%-4s ours against %s: median %.2f of %s", name, peer, median, _rounded(ratios))
        for kind, rows in results.items():
            logging.info(
                "     %-7s %4.0f MB/s, %.2f CPU seconds; peak memory +%.0f MB",
                kind,
                statistics.median(speeds[kind]),
                statistics.median(row[f"{name}_cpu"] for row in rows),
                max(row["peak_mb"] for row in rows),
            )


def transfer_once(*, endpoint: str, kind: str, path: str) -> dict[str, float]:
    """In a process of its own: up, down, and the memory that it took."""
    source, back = Path(path), Path(path + ".back")
    sha256 = content_sha256(source) if kind == "ours" else file_sha256(source)

    def fetch_and_check() -> None:
        client.fget_object(BUCKET, kind, str(back))
        assert file_sha256(back) == sha256

    account = Account(os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"])
    client = make_client(int(endpoint.rpartition(":")[2]), account)
    if kind == "ours":
        config = storage_config(endpoint, BUCKET, part_mib=16, timeout_seconds=60, retry_seconds=300)
        store = open_store(config, f"s3://{BUCKET}")
        up = lambda: store.put_file(kind, source, sha256=sha256)  # noqa: E731 both kinds side by side
        down = lambda: store.get_file(kind, back, sha256=sha256)  # noqa: E731 both kinds side by side
    else:
        up = lambda: client.fput_object(BUCKET, kind, path)  # noqa: E731 both kinds side by side
        fetch = lambda: client.fget_object(BUCKET, kind, str(back))  # noqa: E731 both kinds side by side
        down = fetch_and_check if kind == "checked" else fetch
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = _timed("up", up) | _timed("down", down)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    back.unlink()
    client.remove_object(BUCKET, kind)  # else the server's memory fills, and then it waits forever
    return result | {"peak_mb": peak / 1024}


def measure_steps(gateway: Gateway, inputs: dict[str, str], steps: int, every: int, rounds: int) -> None:
    """What checkpoints add to a run, in CPU seconds and by the clock, and how long resuming takes."""
    results: dict[str, list[dict[str, float]]] = {"with": [], "without": []}
    for number in range(rounds):
        for kind in ("with", "without") if number % 2 == 0 else ("without", "with"):
            details = {"steps": steps, "every": every if kind == "with" else steps + 1}
            row = _run_child(gateway, inputs=inputs, run_key=f"{kind}-{number}", **details)
            results[kind].append(row)
            logging.info("round %d %-7s %s", number + 1, kind, row)
    num_more = steps // every - 1  # a run without checkpoints writes its last one, too
    for clock in ("cpu", "wall"):
        own = statistics.median(row[f"steps_{clock}"] for row in results["without"]) / steps
        added = [
            (a[f"run_{clock}"] - b[f"run_{clock}"]) / num_more
            for a, b in zip(results["with"], results["without"], strict=True)
        ]
        waited = statistics.median(row[f"save_{clock}"] for row in results["with"]) / (num_more + 1)
        written = statistics.median(row[f"write_{clock}"] for row in results["with"]) / (num_more + 1)
        logging.info(
            "%-4s step %.3f s; per checkpoint: the step waits %.3f s = %.2f %% of %d steps, the "
            "thread beside takes %.3f s = %.2f %%, the whole run takes %s s more",
            clock, own, waited, 100 * waited / (every * own), every, written, 100 * written / (every * own),
            _rounded(added),
        )  # fmt: skip
    resumed = [row["resume_wall"] for row in results["with"]]
    logging.info("resume, from the start of the stage to the first step: %s s", _rounded(resumed))


def train_once(
    *, endpoint: str, inputs: dict[str, str], run_key: str, steps: int, every: int
) -> dict[str, float]:
    """In a process of its own: co-training, then one more step of the same run after a new start."""
    import torch

    from cooper_rl.checkpoints.writer import CheckpointWriter
    from cooper_rl.config.load import load
    from cooper_rl.run import loop
    from cooper_rl.stages import train_cooper

    torch.set_num_threads(1)
    meters = {
        "steps": _Meter(loop, "run_step", time.process_time),
        "save": _Meter(CheckpointWriter, "save", time.thread_time),
        "write": _Meter(CheckpointWriter, "_write", time.thread_time),
    }
    storage = {"uri": f"s3://{BUCKET}", "endpoint": endpoint, "run_key": run_key}
    options = [f"storage.{key}={value}" for key, value in storage.items()]
    options += ["labeling.rule.num_workers=1", f"cooper.checkpoint_every={every}"]
    paths = {name: Path(path) for name, path in inputs.items()}
    with tempfile.TemporaryDirectory(prefix="steps-") as folder:
        paths |= {"checkpoint": Path(folder) / "run", "report": Path(folder) / "report.json"}
        run = lambda count: train_cooper.run(load("laptop", [*options, f"cooper.steps={count}"]), **paths)  # noqa: E731 called twice
        result = _timed("run", lambda: run(steps))
        for name, meter in meters.items():
            result |= {f"{name}_cpu": meter.cpu, f"{name}_wall": meter.wall}
        started = time.perf_counter()
        run(steps + 1)
        return result | {"resume_wall": meters["steps"].last_start - started}


class _Meter:
    """Sums the time of all calls of a function, by the clock and on the CPU."""

    def __init__(self, holder: Any, name: str, cpu_clock: Callable[[], float]) -> None:
        self.cpu = self.wall = self.last_start = 0.0
        function = getattr(holder, name)

        def measured(*arguments: Any, **options: Any) -> Any:
            self.last_start, cpu = time.perf_counter(), cpu_clock()
            try:
                return function(*arguments, **options)
            finally:
                self.wall += time.perf_counter() - self.last_start
                self.cpu += cpu_clock() - cpu

        setattr(holder, name, measured)


def _run_child(gateway: Gateway, **details: Any) -> dict[str, float]:
    environment = os.environ | {
        "AWS_ACCESS_KEY_ID": gateway.account.access_key,
        "AWS_SECRET_ACCESS_KEY": gateway.account.secret_key,
    }
    command = [sys.executable, __file__, "child", json.dumps({"endpoint": gateway.endpoint} | details)]
    return json.loads(subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE).stdout)


def _write_random(path: Path, size_mb: int) -> None:
    with path.open("wb") as file:
        for _ in range(size_mb):
            file.write(os.urandom(1_000_000))


def _timed(name: str, action: Callable[[], object]) -> dict[str, float]:
    """Seconds by the clock, and of the CPU, of all threads."""
    started, cpu = time.perf_counter(), time.process_time()
    action()
    return {f"{name}_wall": time.perf_counter() - started, f"{name}_cpu": time.process_time() - cpu}


def _rounded(values: list[float]) -> list[float]:
    return [round(value, 2) for value in values]


if __name__ == "__main__":
    main()
