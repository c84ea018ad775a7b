"""Python's own parser, in one thread at a time."""

import ast
import os
import threading
from typing import Any, Literal

_lock = threading.Lock()


def parse_python(source: str | bytes, *, mode: Literal["exec", "eval"] = "exec") -> Any:
    """`ast.parse`, for any thread.

    Two threads in it at once can end in a SystemError: in Python 3.11.7 they share one count of the depth.
    """
    with _lock:
        return ast.parse(source, mode=mode)


def _renew() -> None:
    global _lock
    _lock = threading.Lock()


# A fork copies a lock that another thread holds, and no thread that would release it.
os.register_at_fork(after_in_child=_renew)
