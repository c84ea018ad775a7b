"""CPU seconds of every stage of a local run, as a Markdown table.

    python -m benchmarks.stage_seconds --profile demo --output runs/timed

Arguments are those of `python -m pipelines local`. With `ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2`
before the command, torch takes a new processor for an old one. Other programs on the machine lengthen the
run, and change CPU seconds less.
"""

import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil

from cooper_rl.stages import STAGES

SECONDS_BETWEEN_LOOKS = 0.2
NAME_BYTES = 15
"""Of a process in Linux."""

OUTSIDE = "start, imports, kfp"
"""What belongs to no stage."""

Process = tuple[int, float]
"""Its id and the time of its start, since ids are used again."""


class Stages:
    """What each process of a run has used so far, and the stage that it belongs to."""

    def __init__(self) -> None:
        self._stages = {stage[:NAME_BYTES]: stage for stage in STAGES}
        self._tasks: dict[Process, str] = {}
        self._seconds: dict[Process, float] = {}
        self._first: dict[str, float] = {}
        self._last: dict[str, float] = {}
        self._num_tasks: dict[str, int] = {}

    def look(self, root: psutil.Process) -> None:
        """Read the clocks of a run's processes; a stage's children are its own."""
        now = time.monotonic()
        for process in root.children(recursive=True):
            with suppress(psutil.Error, OSError):
                key = process.pid, process.create_time()
                times = process.cpu_times()
                task = self._task(process, key)
                self._seconds[key] = times.user + times.system
                self._first.setdefault(task, now)
                self._last[task] = now

    def table(self) -> str:
        """A line for each task, in the order of their starts."""
        lines = ["| task | CPU s | s |", "|---|---|---|"]
        for task in sorted(self._first, key=lambda task: self._first[task]):
            used = sum(seconds for key, seconds in self._seconds.items() if self._tasks[key] == task)
            lines.append(f"| {task} | {used:.1f} | {self._last[task] - self._first[task]:.1f} |")
        return "\n".join([*lines, f"| all | {sum(self._seconds.values()):.1f} | |"])

    def _task(self, process: psutil.Process, key: Process) -> str:
        """A fork has its stage's name from a moment after its start on."""
        known = self._tasks.get(key, OUTSIDE)
        if known != OUTSIDE:
            return known
        parent = process.parent()
        task = self._tasks.get((parent.pid, parent.create_time()), OUTSIDE) if parent else OUTSIDE
        stage = self._stages.get(Path(f"/proc/{process.pid}/comm").read_text(encoding="utf-8").strip())
        if task == OUTSIDE and stage:
            self._num_tasks[stage] = number = self._num_tasks.get(stage, 0) + 1
            task = stage if number == 1 else f"{stage} {number}"
        self._tasks[key] = task
        return task


def main() -> int:
    """Run the pipeline, and print the table; returns the run's exit status."""
    command = [sys.executable, "-m", "pipelines", "local", *sys.argv[1:]]
    started = time.monotonic()
    run = subprocess.Popen(command)
    stages = Stages()
    while run.poll() is None:
        with suppress(psutil.NoSuchProcess):
            stages.look(psutil.Process(run.pid))
        time.sleep(SECONDS_BETWEEN_LOOKS)
    load = psutil.getloadavg()[2]
    sys.stdout.write(
        f"\n{stages.table()}\n\n{time.monotonic() - started:.0f} s; load of 15 minutes {load:.1f}\n"
    )
    return run.returncode


if __name__ == "__main__":
    sys.exit(main())
