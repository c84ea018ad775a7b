"""Turns what kfp.local and the stages print into lines that a person can follow.

    [ 4/12] train-verify-rm  120/400 loss=0.31 eta 0:21
    [ 4/12] train-verify-rm  done in 0:41

kfp.local offers no hook: it prints, and so it runs in a process of its own whose output is read here line by
line. Deliberately left out: starting that process (`pipelines/local/run.py`), and everything else that it
prints, which goes to the log file as it is.
"""

import re
import shutil
import time
from typing import TextIO

from cooper_rl.progress import clock

_COLOUR = re.compile(r"\x1b\[\d*m")
_STARTED = re.compile(r"- Executing task '(?P<task>[^']+)'$")
_FINISHED = re.compile(r"- Task '(?P<task>[^']+)' finished with status (?P<status>\w+)$")
_CACHED = re.compile(r"^Task (?P<task>\S+) cache hit ")
_LOGGED = re.compile(r"^\s*\[KFP Executor [^\]]* (?P<level>[A-Z]+)\]: (?P<message>.*)$")
_PROGRESS = re.compile(r"^(?P<name>.+?) (?P<rest>\d+/\d+( .*)? eta [\d:]+)$")
_WARNED = re.compile(r"CooperWarning: (?P<message>.*)$")
_TRACEBACK = "Traceback (most recent call last):"

MAX_WARNINGS_PER_TASK = 3
SECONDS_BETWEEN_LINES_IN_A_FILE = 10.0  # a terminal overwrites its line of progress, a file keeps them all


class Follower:
    """Reads a run's output line by line, shows where it is, and keeps what a failure said."""

    def __init__(self, num_tasks: int, screen: TextIO) -> None:
        self.num_started = 0
        self.num_cached = 0
        self.failed_task: str | None = None
        self.num_tasks = num_tasks
        self._screen = screen
        self._is_terminal = screen.isatty()
        self._task = ""
        self._task_started = 0.0
        self._last_progress = 0.0
        self._num_warnings = 0
        self._is_running = False
        self._is_in_frames = False
        self._error: list[str] = []
        self._failure: list[str] = []

    @property
    def error(self) -> str:
        """What the failed task, else the last exception, said; a message of ours without its class's name."""
        text = "\n".join(self._error if self.failed_task is None else self._failure).strip()
        return re.sub(r"^cooper_rl\.errors\.\w+: ", "", text)

    def read(self, line: str) -> None:
        """Take one line of the run's output."""
        text = _COLOUR.sub("", line.rstrip("\n"))
        if match := _STARTED.search(text):
            self._start(match["task"])
        elif match := _CACHED.search(text):
            self._start(match["task"])
            self.num_cached += 1
            self._is_running = False
            self._show("kept from an earlier start")
        elif match := _FINISHED.search(text):
            self._finish(match["status"])
        elif match := _LOGGED.search(text):
            self._log(match["level"], match["message"])
        elif match := _WARNED.search(text):
            self._warn(match["message"])
        elif self._is_running:
            self._collect_error(text.removeprefix("    "))  # kfp indents what a task prints
        elif self.failed_task is None:
            self._collect_error(text)

    def _start(self, task: str) -> None:
        self.num_started += 1
        self._task, self._task_started, self._last_progress = task, time.monotonic(), 0.0
        self._num_warnings = 0
        self._is_running, self._is_in_frames, self._error = True, False, []
        if self._is_terminal:
            self._show("...", is_final=False)

    def _finish(self, status: str) -> None:
        self._is_running = False
        seconds = clock(time.monotonic() - self._task_started)
        if status == "SUCCESS":
            self._show(f"done in {seconds}")
        else:
            if self.failed_task is None:  # the exit task runs after it
                self.failed_task, self._failure = self._task, list(self._error)
            self._show(f"failed after {seconds}")

    def _log(self, level: str, message: str) -> None:
        progress = _PROGRESS.search(message)
        if progress:
            now = time.monotonic()
            if not self._is_terminal and now - self._last_progress < SECONDS_BETWEEN_LINES_IN_A_FILE:
                return
            self._last_progress = now
            stage = re.sub(r"-\d+$", "", self._task).replace("-", "_")
            self._show(f"{progress['name']} {progress['rest']}".removeprefix(f"{stage} "), is_final=False)
        elif level in {"WARNING", "ERROR", "CRITICAL"}:
            self._warn(message)

    def _warn(self, message: str) -> None:
        self._num_warnings += 1
        if self._num_warnings <= MAX_WARNINGS_PER_TASK:
            self._show(f"warning: {message}")
        elif self._num_warnings == MAX_WARNINGS_PER_TASK + 1:
            self._show("more warnings: see the log")

    def _collect_error(self, text: str) -> None:
        """Keep the message of the last traceback: the first line that is not indented, and all below it."""
        if text.startswith(_TRACEBACK):
            self._is_in_frames, self._error = True, []
        elif self._is_in_frames and text and not text.startswith(" "):
            self._is_in_frames = False
            self._error = [text]
        elif self._error and self._error[-1] != "":
            self._error.append(text.rstrip())

    def _show(self, text: str, *, is_final: bool = True) -> None:
        """Write a line; on a terminal, one that is not final is overwritten by the next."""
        width = len(str(self.num_tasks))
        line = f"[{self.num_started:>{width}}/{self.num_tasks}] {self._task}  {text}"
        if not self._is_terminal:
            self._screen.write(line + "\n")
        elif is_final:
            self._screen.write(f"\r\x1b[K{line}\n")
        else:
            self._screen.write(f"\r\x1b[K{line[: shutil.get_terminal_size().columns - 1]}")
        self._screen.flush()
