"""Memory of `train-verify-rm` on made-up labelled rows, up to some updates; prints a row of a table.

    OMP_NUM_THREADS=1 python -m benchmarks.fit_scale 1000000

Each row is a JSON line of about 200 characters; ten completions share a question. The model is tiny, from
scratch. The process is stopped (SIGTERM) after `NUM_UPDATES` updates, when all rows have been read and
grouped. The peak is its resident memory.
"""

import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

NUM_UPDATES = 20
UPDATE = re.compile(r"train_verify_rm (\d+)/")
SETTINGS = {
    "verify_rm.scratch.vocab_size": 400, "verify_rm.scratch.hidden_size": 16,
    "verify_rm.scratch.num_layers": 1, "verify_rm.scratch.num_heads": 2, "verify_rm.num_epochs": 1,
    "verify_rm.hostile_fraction": 0.25, "verify_rm.swapped_references": "true",
    "verify_rm.num_canary_problems": 100,
}  # fmt: skip


def main() -> None:
    count = int(sys.argv[1])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part, first, rows in (("train", 0, count), ("validation", count, 200)):
            with (folder / f"{part}.jsonl").open("w", encoding="utf-8") as lines:
                lines.writelines(json.dumps(row) + "\n" for row in make_rows(first, rows))
        started = time.monotonic()
        peak, cpu = watch(folder)
        seconds = time.monotonic() - started
    sys.stdout.write(f"| {count:,} | {peak} | {seconds:.0f} | {cpu:.0f} |\n")


def watch(folder: Path) -> tuple[int, float]:
    """Run the stage until its updates are done: peak MB, CPU seconds."""
    files = [f"--{part}={folder / part}.jsonl" for part in ("train", "validation")]
    outputs = [f"--verify-rm={folder / 'verify_rm'}", f"--report={folder / 'report.json'}"]
    settings = [f"--set={key}={value}" for key, value in SETTINGS.items()]
    command = [
        sys.executable,
        "-m",
        "cooper_rl",
        "train-verify-rm",
        "--preset=laptop",
        *files,
        *outputs,
        *settings,
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        found = map(UPDATE.search, process.stderr)
        if not any(match and int(match[1]) >= NUM_UPDATES for match in found):
            raise SystemExit("the training ended before its updates")
        status = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
        ticks = Path(f"/proc/{process.pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
        process.terminate()
        process.stderr.read()
    peak = next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]
    return int(peak) // 1024, (int(ticks[11]) + int(ticks[12])) / 100


def make_rows(first: int, count: int) -> Iterator[dict[str, str | int]]:
    for n in range(first, first + count):
        shop, attempt = divmod(n, 10)
        boxes, pens = shop % 97 + 1, shop % 13 + 2
        stated = boxes * pens + attempt % 3
        yield {
            "question": f"Shop {shop} sells {boxes} boxes of {pens} pens each. How many pens are that?",
            "reference_answer": str(boxes * pens),
            "completion": f"Attempt {attempt}: {boxes} * {pens} = {stated}.\n#### {stated}",
            "label": int(stated == boxes * pens),
        }


if __name__ == "__main__":
    main()
