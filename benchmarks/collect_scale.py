"""Seconds and memory of `collect-problems` on made-up problems; prints a row of a table.

    python -m benchmarks.collect_scale 1000000

Each problem is a JSON line in GSM8K's layout of about 150 characters; 1,000 are held out. The peak is the
resident memory of the process.
"""

import json
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from cooper_rl.config.load import load
from cooper_rl.stages import collect_problems


def main() -> None:
    count = int(sys.argv[1])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = folder / "made_up.jsonl"
        with source.open("w", encoding="utf-8") as lines:
            lines.writelines(json.dumps(row) + "\n" for row in make_rows(count))
        sources = f"problems.sources={json.dumps([str(source)])}"
        config = load("laptop", ["problems.num_tiny=0", "problems.num_held_out=1000", sources])
        outputs = {output: folder / output for output in ("problems", "held_out", "rejected", "report")}
        started, cpu = time.perf_counter(), time.process_time()
        collect_problems.run(config, **outputs)
        seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    sys.stdout.write(f"| {count:,} | {peak} | {seconds:.0f} | {cpu:.0f} |\n")


def make_rows(count: int) -> Iterator[dict[str, str]]:
    for n in range(count):
        boxes, pens, back = n % 97, n % 13 + 2, n % 7
        yield {
            "question": f"Shop {n} sells {boxes} boxes of {pens} pens each, and takes back {back}. "
            "How many pens are gone in the end?",
            "answer": f"Multiply, then subtract.\n#### {boxes * pens - back}",
        }


if __name__ == "__main__":
    main()
