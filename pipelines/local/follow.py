"""Turns what kfp.local and the stages print into lines that a person can follow.

    [ 4/12] train-verify-rm  120/400 loss=0.31 eta 0:21
    [ 4/12] train-verify-rm  done in 0:41

kfp.local offers no hook: it prints, and so it runs in a process of its own whose output is read here line by
line. `pipelines/local/lines.py` names each line after its task, since several run at once.
"""

import re
import shutil
import time
from collections.abc import Iterable
from typing import TextIO

from cooper_rl.progress import clock
from cooper_rl.schema.texts import printable
from pipelines.local.lines import read_line

_COLOUR = re.compile(r"\x1b\[[\d;]*m")
_STARTED = re.compile(r"- Executing task '[^']+'$")
_FINISHED = re.compile(r"- Task '[^']+' finished with status (?P<status>\w+)$")
_CACHED = re.compile(r"- Task \S+ cache hit ")
_LOGGED = re.compile(r"^\[KFP Executor [^\]]* (?P<level>[A-Z]+)\]: (?P<message>.*)$")
_PROGRESS = re.compile(r"^(?P<name>.+?) (?P<rest>\d+/\d+( .*)? eta [\d:]+)$")
_WARNED = re.compile(r"CooperWarning: (?P<message>.*)$")
_TRACEBACK = "Traceback (most recent call last):"

MAX_WARNINGS_PER_TASK = 3
SECONDS_BETWEEN_LINES_IN_A_FILE = 10.0  # a terminal overwrites its lines of progress, a file keeps them all


class Follower:
    """Reads a run's output line by line, shows where it is, and keeps what a failure said."""

    def __init__(self, num_tasks: int, screen: TextIO) -> None:
        self.num_started = 0
        self.num_cached = 0
        self.failed_task: str | None = None
        self.num_tasks = num_tasks
        self._screen = _Screen(screen)
        self._running: dict[str, _Task] = {}
        self._failure = _LastError()
        self._outside = _LastError()

    @property
    def error(self) -> str:
        """Error message of the failed task, else of the last exception, without the name of our own class."""
        text = (self._outside if self.failed_task is None else self._failure).text
        return re.sub(r"^cooper_rl\.errors\.\w+: ", "", text)

    def read(self, line: str) -> None:
        """Take one line of the run's output."""
        # What a stage prints may hold texts of others, and a terminal obeys their control characters.
        name, text, is_log = read_line(printable(_COLOUR.sub("", line.rstrip("\n").expandtabs())))
        if is_log:
            self._read_log(name, text)
        elif name in self._running:
            self._read_task(self._running[name], text)
        elif not name:
            self._outside.read(text)

    def _read_log(self, name: str, text: str) -> None:
        if _STARTED.search(text):
            self._start(name)
        elif _CACHED.search(text):
            self.num_cached += 1
            self._end(self._start(name), "kept from an earlier start")
        elif name in self._running and (match := _FINISHED.search(text)):
            task = self._running[name]
            seconds = clock(time.monotonic() - task.started)
            is_good = match["status"] == "SUCCESS"
            if not is_good and self.failed_task is None:  # the exit task runs after it
                self.failed_task, self._failure = task.name, task.error
            self._end(task, f"{'done in' if is_good else 'failed after'} {seconds}")

    def _start(self, name: str) -> "_Task":
        self.num_started += 1
        number = f"[{self.num_started:>{len(str(self.num_tasks))}}/{self.num_tasks}]"
        task = self._running[name] = _Task(name, f"{number} {name}")
        self._screen.show_progress(self._running.values())
        return task

    def _end(self, task: "_Task", text: str) -> None:
        del self._running[task.name]
        self._screen.write(f"{task.title}  {text}", running=self._running.values())

    def _read_task(self, task: "_Task", text: str) -> None:
        if match := _LOGGED.search(text):
            self._log(task, match["level"], match["message"])
        elif match := _WARNED.search(text):
            self._warn(task, match["message"])
        else:
            task.error.read(text)

    def _log(self, task: "_Task", level: str, message: str) -> None:
        if progress := _PROGRESS.search(message):
            stage = re.sub(r"-\d+$", "", task.name.partition(" ")[0]).replace("-", "_")
            task.progress = f"{progress['name']} {progress['rest']}".removeprefix(f"{stage} ")
            self._screen.show_progress(self._running.values(), changed=task)
        elif level in {"WARNING", "ERROR", "CRITICAL"}:
            self._warn(task, message)

    def _warn(self, task: "_Task", message: str) -> None:
        task.num_warnings += 1
        text = f"warning: {message}"
        if task.num_warnings == MAX_WARNINGS_PER_TASK + 1:
            text = "more warnings: see the log"
        if task.num_warnings <= MAX_WARNINGS_PER_TASK + 1:
            self._screen.write(f"{task.title}  {text}", running=self._running.values())


class _LastError:
    """The message of the last traceback: its first line that is not indented, and all below it."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._is_in_frames = False

    @property
    def text(self) -> str:
        return "\n".join(self._lines).strip()

    def read(self, text: str) -> None:
        if text.startswith(_TRACEBACK):
            self._is_in_frames, self._lines = True, []
        elif self._is_in_frames and text and not text.startswith(" "):
            self._is_in_frames = False
            self._lines = [text]
        elif self._lines and self._lines[-1] != "":
            self._lines.append(text.rstrip())


class _Task:
    """A task that runs."""

    def __init__(self, name: str, title: str) -> None:
        self.name = name
        self.title = title
        self.started = time.monotonic()
        self.progress = "..."
        self.last_shown = 0.0
        self.num_warnings = 0
        self.error = _LastError()


class _Screen:
    """A terminal, whose last lines are the progress of all tasks that run, or a file."""

    def __init__(self, screen: TextIO) -> None:
        self._screen = screen
        self._is_terminal = screen.isatty()
        self._num_lines = 0

    def write(self, line: str, *, running: Iterable[_Task]) -> None:
        """Add a line that stays, above the progress of what runs."""
        self._screen.write(f"{self._erase()}{line}\n")
        self.show_progress(running)

    def show_progress(self, running: Iterable[_Task], *, changed: _Task | None = None) -> None:
        """Show where tasks are; a file gets a line now and then, of the task that got on."""
        if self._is_terminal:
            width = shutil.get_terminal_size().columns - 1
            lines = [f"{task.title}  {task.progress}"[:width] for task in running]
            self._screen.write(self._erase() + "\n".join(lines))
            self._num_lines = len(lines)
        elif changed is not None:
            now = time.monotonic()
            if now - changed.last_shown >= SECONDS_BETWEEN_LINES_IN_A_FILE:
                changed.last_shown = now
                self._screen.write(f"{changed.title}  {changed.progress}\n")
        self._screen.flush()

    def _erase(self) -> str:
        """The characters that take the lines of progress off a terminal."""
        up = f"\x1b[{self._num_lines - 1}A" if self._num_lines > 1 else ""
        is_shown, self._num_lines = self._num_lines > 0, 0
        return f"{up}\r\x1b[J" if is_shown else ""
