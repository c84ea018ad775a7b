"""Memory and time of labelling many rows by the rule alone.

    python -m benchmarks.label_scale 10000 100000 1000000
    python -m benchmarks.label_scale 100000 --chars 5000 --suffix parquet

Four made-up completions answer each problem, all in formats that need no worker. Every number of rows has a
process of its own, and "peak" is its resident memory at most (VmHWM). Writes Markdown to the standard output.
"""

import argparse
import json
import math
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from cooper_rl.config.load import load
from cooper_rl.machine.scratch import scratch_folder
from cooper_rl.records.files import write_records
from cooper_rl.schema.data import Completion, Problem
from cooper_rl.stages import label_completions

SAMPLES = 4


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rows", type=int, nargs="+")
    parser.add_argument("--chars", type=int, default=1000, help="of a completion (default: 1000)")
    parser.add_argument("--suffix", choices=["jsonl", "parquet"], default="jsonl")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside is not None:
        label(options.inside, options.suffix)
        return 0
    sys.stdout.write("| rows | input MB | peak MB | seconds | CPU seconds | rows/s |\n|-|-|-|-|-|-|\n")
    for num_rows in options.rows:
        with scratch_folder() as folder:
            write_inputs(folder, num_rows, chars=options.chars, suffix=options.suffix)
            command = [sys.executable, "-m", "benchmarks.label_scale", "1", "--inside", str(folder)]
            done = subprocess.run(
                [*command, "--suffix", options.suffix], stdout=subprocess.PIPE, text=True, check=True
            )
            found = json.loads(done.stdout)
            size = sum(path.stat().st_size for path in folder.glob(f"[cp]*.{options.suffix}")) / 1e6
            sys.stdout.write(
                f"| {num_rows:,} | {size:,.0f} | {found['peak_mb']:.0f} | {found['seconds']:.0f} "
                f"| {found['cpu_seconds']:.0f} | {num_rows / found['seconds']:,.0f} |\n"
            )
            sys.stdout.flush()
    sys.stdout.write(f"\nload average {os.getloadavg()[1]:.1f} on {os.cpu_count()} cores\n")
    return 0


def write_inputs(folder: Path, num_rows: int, *, chars: int, suffix: str) -> None:
    """Problems and completions as a stage before would have written them."""
    write_records(folder / f"problems.{suffix}", _problems(num_rows // SAMPLES, chars))
    write_records(folder / f"completions.{suffix}", _completions(num_rows, chars))


def _problems(count: int, chars: int) -> Iterator[Problem]:
    padding = "It is asked in many words. " * (chars // 5 // 27)
    for number in range(count):
        question = f"{padding}What is {number} plus 3?"
        yield Problem(id=f"p{number}", source="made", question=question, reference_answer=str(number + 3))


def _completions(count: int, chars: int) -> Iterator[Completion]:
    thought = "Let us think about it step by step, and carry on. " * (chars // 50)
    for row in range(count):
        number, sample = divmod(row, SAMPLES)
        answer = (number + 3, number + 3, number + 4, "plenty")[sample]
        yield Completion(
            id=f"p{number}-{sample}",
            problem_id=f"p{number}",
            model="made",
            text=f"{thought}{row}.\nSo the answer is {answer}.",
            finish_reason="stop",
        )


def label(folder: Path, suffix: str) -> None:
    """In a process of its own: label the rows of a folder, and print what it took."""
    started = time.monotonic()
    label_completions.run(
        load("laptop", ["labeling.judge=null"]),
        problems=folder / f"problems.{suffix}",
        completions=folder / f"completions.{suffix}",
        labels=folder / f"labels.{suffix}",
        train=folder / f"train.{suffix}",
        validation=folder / f"validation.{suffix}",
        test=folder / f"test.{suffix}",
        report=folder / "report.json",
    )
    peak = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    found = {
        "peak_mb": int(peak[1]) * 1024 / 1e6 if peak else math.nan,
        "seconds": time.monotonic() - started,
        "cpu_seconds": time.process_time(),
    }
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    sys.exit(main())
