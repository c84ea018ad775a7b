"""Standard output of tasks that run at once: whole lines, each behind the name of its task.

    train-cooper > 22:10:01 - INFO - Executing task 'train-cooper'
    train-cooper | [KFP Executor 2026-11-24 22:10:03,120 INFO]: step=3 phase=policy_update loss=0.412
    train-cooper rule-0 | [KFP Executor 2026-11-24 22:10:03,120 INFO]: ...

The third name has the turn of a loop, whose tasks have the names of those of the other turns. Lines from
outside any task are left as they are. kfp.local prints from the thread that runs a task. Its own log has
another mark than what a stage prints, which may hold any text: a completion, the name of a file.
"""

import io
import re
import threading
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import NamedTuple, TextIO

_TASK: ContextVar[str] = ContextVar("task", default="")
_TURN: ContextVar[str] = ContextVar("turn", default="")
_NAMED = re.compile(
    r"^(?P<task>[a-z0-9][a-z0-9-]*( [a-z0-9-]+)?) (?P<mark>[|>]) (?P<text>.*)$", flags=re.DOTALL
)
_OUTPUT, _LOG = "|", ">"


class Line(NamedTuple):
    """A line of a task."""

    task: str
    """Empty outside any."""
    text: str
    is_log: bool
    """True if kfp.local says it of the task, False if the task printed it."""


def lines_named(task: str) -> AbstractContextManager[None]:
    """In the block, what this thread writes to a `NamedLines` is this task's."""
    return _set(_TASK, f"{task} {_TURN.get()}".rstrip())


def turn_named(turn: str) -> AbstractContextManager[None]:
    """In the block, tasks are those of this turn of a loop, in threads that get the block's context too."""
    return _set(_TURN, turn)


@contextmanager
def _set(variable: ContextVar[str], value: str) -> Generator[None]:
    before = variable.set(value)
    try:
        yield
    finally:
        variable.reset(before)


class NamedLines(io.TextIOBase):
    """Writes every thread's text to one stream, line by line; to it another one may write, of the log."""

    _turn = threading.Lock()

    def __init__(self, stream: TextIO, *, is_log: bool = False) -> None:
        self._stream = stream
        self._mark = _LOG if is_log else _OUTPUT
        self._begun = threading.local()

    def write(self, text: str, /) -> int:
        """Keep a line that has no end yet; it goes out with its end."""
        *lines, rest = (getattr(self._begun, "text", "") + text).split("\n")
        self._begun.text = rest
        task = _TASK.get()
        before = f"{task} {self._mark} " if task else ""
        if lines:
            with self._turn:
                self._stream.write("".join(f"{before}{line}\n" for line in lines))
                self._stream.flush()
        return len(text)

    def flush(self) -> None:
        """Do nothing: every line has been flushed."""


def read_line(line: str) -> Line:
    """Take the task's name off a line."""
    match = _NAMED.match(line)
    return (
        Line(match["task"], match["text"], match["mark"] == _LOG) if match else Line("", line, is_log=False)
    )
