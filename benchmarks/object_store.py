"""What checkpoints cost: transfers against the plain minio client, the step's waiting time, resuming.

    python benchmarks/object_store.py transfers --size-mb 1000     # needs Ceph's gateway
    python benchmarks/object_store.py steps --steps 60             # checkpoint every 10

Transfers are interleaved: plain client and ours in turn, several rounds, median of the ratios; memory is the
peak growth of a process of its own. Steps are trained once; what the step waits is measured inside the run.
"""

import argparse
import hashlib
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

sys.path.insert(0, str(Path(__file__).parent.parent))  # the servers are the tests' own

from cooper_rl.backends.open_store import open_store
from tests.servers.fixtures import make_client, storage_config
from tests.servers.radosgw import Account, Gateway, run_gateway, why_missing

BUCKET = "benchmark"


def main() -> None:
    """Run one benchmark and show its numbers."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    transfers = commands.add_parser("transfers")
    transfers.add_argument("--size-mb", type=int, default=1000)
    transfers.add_argument("--rounds", type=int, default=3)
    steps = commands.add_parser("steps")
    steps.add_argument("--steps", type=int, default=60)
    steps.add_argument("--every", type=int, default=10)
    child = commands.add_parser("one-transfer")
    child.add_argument("details")
    options = parser.parse_args()
    if options.command == "transfers":
        measure_transfers(options.size_mb, options.rounds)
    elif options.command == "steps":
        measure_steps(options.steps, options.every)
    else:
        transfer_once(json.loads(options.details))


def measure_transfers(size_mb: int, rounds: int) -> None:
    """MB/s up and down, and peak memory, of the plain client and of ours, in turn."""
    reason = why_missing()
    if reason:
        sys.exit(reason)
    with (
        tempfile.TemporaryDirectory(prefix="rgw-") as folder,
        run_gateway(Path(folder) / "server") as gateway,
    ):
        make_client(gateway.port, gateway.account).make_bucket(BUCKET)
        path = Path(folder) / "checkpoint"
        sha256 = _write_random(path, size_mb)
        results: dict[str, list[dict[str, float]]] = {"plain": [], "ours": []}
        for number in range(rounds):
            for kind in ("plain", "ours") if number % 2 == 0 else ("ours", "plain"):
                results[kind].append(_measure(gateway, kind, path, sha256))
                logging.info("round %d %-5s %s", number + 1, kind, results[kind][-1])
    for name in ("up", "down"):
        speeds = {kind: [size_mb / row[name] for row in rows] for kind, rows in results.items()}
        ratios = [ours / plain for ours, plain in zip(speeds["ours"], speeds["plain"], strict=True)]
        logging.info(
            "%-4s ours %.0f MB/s, plain %.0f MB/s, median ratio %.2f; peak memory %.0f MB, plain %.0f MB",
            name,
            statistics.median(speeds["ours"]),
            statistics.median(speeds["plain"]),
            statistics.median(ratios),
            max(row["peak_mb"] for row in results["ours"]),
            max(row["peak_mb"] for row in results["plain"]),
        )  # fmt: skip


def transfer_once(details: dict[str, str]) -> None:
    """In a process of its own: up, down, and the memory that it took."""
    account = Account(os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"])
    path, back, sha256 = Path(details["path"]), Path(details["path"] + ".back"), details["sha256"]
    if details["kind"] == "ours":
        config = storage_config(details["endpoint"], BUCKET, part_mib=16, timeout_seconds=60)
        store = open_store(config, f"s3://{BUCKET}/ours")
        up = lambda: store.put_file("checkpoint", path, sha256=sha256)  # noqa: E731 both kinds side by side
        down = lambda: store.get_file("checkpoint", back, sha256=sha256)  # noqa: E731 both kinds side by side
    else:
        client = make_client(int(details["endpoint"].rpartition(":")[2]), account)
        up = lambda: client.fput_object(BUCKET, "plain", str(path))  # noqa: E731 both kinds side by side
        down = lambda: client.fget_object(BUCKET, "plain", str(back))  # noqa: E731 both kinds side by side
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds = {"up": _seconds(up), "down": _seconds(down)}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    back.unlink()
    sys.stdout.write(json.dumps(seconds | {"peak_mb": peak / 1024}))


def measure_steps(steps: int, every: int) -> None:
    """Train small models by the laptop preset; compare the seconds that steps waited with all seconds."""
    from cooper_rl.backends.checkpoint import read_metrics
    from cooper_rl.config import load
    from cooper_rl.stages import train_cooper
    from tests.faults.kill_server import prepare

    with tempfile.TemporaryDirectory(prefix="steps-") as temporary:
        folder = Path(temporary)
        prepare(folder, hidden_size=128)
        options = [f"cooper.steps={steps}", f"cooper.checkpoint_every={every}", "labeling.rule.num_workers=1"]
        inputs = {"models": folder / "models", "verify_rm": folder / "verify_rm"}
        inputs |= {"problems": folder / "problems.jsonl", "checkpoint": folder / "run"}
        started = time.perf_counter()
        train_cooper.run(load("laptop", options), report=folder / "report.json", **inputs)
        whole = time.perf_counter() - started
        rows = read_metrics(next((folder / "run").glob(f"step-{steps:06d}*")) / "metrics.jsonl")
        waited = sum(row["seconds/checkpoint"] for row in rows)
        worked = (
            sum(value for row in rows for key, value in row.items() if key.startswith("seconds/")) - waited
        )
        (folder / "run" / "LATEST").write_text(f"step-{steps - every:06d}\n")
        started = time.perf_counter()
        again = [options[0].replace(str(steps), str(steps - every + 1)), *options[1:]]
        train_cooper.run(load("laptop", again), report=folder / "report.json", **inputs)
        resumed = time.perf_counter() - started - rows[-1]["seconds/rollout"]
    logging.info(
        "%d steps, a checkpoint every %d: %.1f s in steps, %.3f s waited for checkpoints = %.2f %%; "
        "whole run %.1f s; resuming and one step with its checkpoint %.1f s",
        steps, every, worked, waited, 100 * waited / worked, whole, resumed,
    )  # fmt: skip


def _measure(gateway: Gateway, kind: str, path: Path, sha256: str) -> dict[str, float]:
    details = {"kind": kind, "path": str(path), "sha256": sha256, "endpoint": gateway.endpoint}
    environment = os.environ | {
        "AWS_ACCESS_KEY_ID": gateway.account.access_key,
        "AWS_SECRET_ACCESS_KEY": gateway.account.secret_key,
    }
    command = [sys.executable, __file__, "one-transfer", json.dumps(details)]
    return json.loads(subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE).stdout)


def _write_random(path: Path, size_mb: int) -> str:
    found = hashlib.sha256()
    with path.open("wb") as file:
        for _ in range(size_mb):
            block = os.urandom(1_000_000)
            found.update(block)
            file.write(block)
    return found.hexdigest()


def _seconds(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
