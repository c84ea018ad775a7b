"""The processes that run programs for the verifier: `python -m cooper_rl.verdicts.program_worker`.

A nursery forks a process for every request on its sockets, and that process a child for the program; one that
is killed costs its own request alone. The child can compute and nothing else: a seccomp filter lets it have
memory, write to one pipe and end, so that it reaches no file, no network and no other process, and cannot
sleep; limits that it cannot raise bound its CPU time and memory. It is told the calls to make and never what
they should give, so that no program can claim to have passed: values are compared in the verifier's own
process (`verdicts/programs.py`). Linux only.
"""

import ctypes
import io
import json
import math
import os
import platform
import resource
import select
import selectors
import signal
import socket
import struct
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Never

from cooper_rl.verdicts.worker import LOST, WALL_TO_CPU_SECONDS, receive_message, send_message

MAX_MEMORY_BYTES = 512 * 1024**2
"""Address space of one program."""
MAX_RESULT_BYTES = 64 * 1024
"""Size of one program's results; a program that writes more is killed."""
END_SECONDS = 1.0
"""Seconds for a child to end once it has closed its pipe."""
CPU_SHARE = 0.8
"""Share of its CPU time from which on a child was killed by that limit: the kernel counts whole ticks for it,
and up to a tenth was missing from what it reports at the end."""
IMPORTABLE = (
    "bisect", "collections", "functools", "heapq", "itertools", "math", "operator", "re", "string",
)  # fmt: skip
"""Modules that a program can import: they are there before it starts, since it can open no file."""

ALLOWED = {
    "x86_64": (
        0xC000003E,
        (0, 1, 3, 9, 10, 11, 12, 13, 14, 15, 25, 28, 39, 60, 131, 186, 228, 231, 318),
    ),
    "aarch64": (
        0xC00000B7,
        (63, 64, 57, 222, 226, 215, 214, 134, 135, 139, 216, 233, 172, 93, 132, 178, 113, 94, 278),
    ),
}
"""Machine -> its number in the kernel's audit headers, and the system calls that a program may make: read,
write, close, memory, signals, its own numbers, the clock, random bytes and exit. No futex: a lock that nobody
holds needs none, and a wait for another one takes no CPU time, so that no limit on that would end it."""
_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _REFUSE, _KILL = 0x7FFF0000, 0x00050001, 0x80000000
"""Refused calls fail with EPERM, which a program sees as an exception."""
_PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS, _FILTER_MODE = 1, 22, 38, 2


class KilledError(Exception):
    """A child was killed by something else than its limits."""


@dataclass
class Run:
    """The process of one request."""

    pid: int
    channel: socket.socket
    number: int
    """Of the requests on its socket, from 1."""
    has_read: bool = False
    """The whole request, so that what the socket holds now is another one."""


def main(arguments: list[str]) -> None:
    """The nursery: a process for each request on each socket, until all sockets are closed."""
    limit_seconds = float(arguments[0])
    for name in IMPORTABLE:
        # Before the filter: an import opens files, which the child cannot do any more.
        __import__(name)
    channels = [socket.socket(fileno=int(number)) for number in arguments[1:]]
    # Asked of a program of our own: what another one's child says could be that program's words.
    probe = _ask_child("", [], limit_seconds=limit_seconds)
    if probe != ["results", []] and probe[0] != "unsafe":
        probe = ["unsafe", f"an empty program fails: {probe[1]}"]
    with selectors.PollSelector() as selector:  # no handle of its own, which every fork would share
        for channel in channels:
            selector.register(channel, selectors.EVENT_READ, 1)
        while selector.get_map():
            for key, _ in selector.select():
                if isinstance(key.data, Run):
                    follow(selector, key.fd, key.data)
                else:
                    _begin(selector, key.fileobj, key.data, probe, limit_seconds)


def _begin(
    selector: selectors.BaseSelector, channel: Any, number: int, probe: Any, limit_seconds: float
) -> None:
    """Start the process of a request, or let a socket go whose other side has closed."""
    selector.unregister(channel)
    # Read in a process of its own: a child has its parent's memory, and could search it for the program of
    # the request before, which may pass the same tests.
    if not _has_request(channel):
        channel.close()
        return
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read_end)
        _answer(channel, write_end, probe, limit_seconds)
    # The process alone holds it now, so that its end is seen.
    os.close(write_end)
    selector.register(read_end, selectors.EVENT_READ, Run(pid, channel, number))


def _has_request(channel: socket.socket) -> bool:
    try:
        return bool(channel.recv(1, socket.MSG_PEEK))
    except OSError:  # closed before it had read the last reply
        return False


def follow(selector: selectors.BaseSelector, read_end: int, run: Run) -> None:
    """Heed what the process of a request says: that it has read the request, and its end."""
    if os.read(read_end, 1):
        run.has_read = True
        return
    selector.unregister(read_end)
    os.close(read_end)
    _, status = os.waitpid(run.pid, 0)
    if status:
        if not run.has_read:
            discard_request(run.channel)
        # It may have replied before: with its number, nobody takes this for the reply to the next request.
        with suppress(OSError):  # the other side is gone too
            send_message(run.channel, [LOST, f"its process ended (status {status})", run.number])
    selector.register(run.channel, selectors.EVENT_READ, run.number + 1)


def discard_request(channel: socket.socket) -> None:
    """Take what a killed process has not read: there is one request at a time, so all of it is that one's."""
    rest = bytearray(MAX_RESULT_BYTES)
    with suppress(BlockingIOError):
        while channel.recv_into(rest, 0, socket.MSG_DONTWAIT):
            pass
    rest[:] = bytes(len(rest))  # no later program may find it in its memory


def _answer(channel: socket.socket, write_end: int, probe: Any, limit_seconds: float) -> Never:
    status = 1
    try:
        _end_with_parent()
        if (request := receive_message(channel)) is not None:
            os.write(write_end, b"r")
            program, calls = request
            is_safe = probe[0] != "unsafe"
            reply = run_calls(program, calls, limit_seconds=limit_seconds) if is_safe else probe
            send_message(channel, reply)
        status = 0
    finally:
        # _exit: the nursery's buffers and exit handlers were copied by the fork, and must not run twice.
        os._exit(status)


def run_calls(program: str, calls: list[str], *, limit_seconds: float) -> list[Any]:
    """Run a program in a child, then the calls.

    Returns:
        `["results", R]` with a pair for each call: `["value", encoded]` or `["error", why]`; or
        `["ended", why]` where the child ended before it had results; or `[LOST, why]` where it was killed
        from outside.
    """
    try:
        found = _ask_child(program, calls, limit_seconds=limit_seconds)
    except KilledError as error:
        # Said here alone: a child may write that word itself.
        return [LOST, str(error)]
    match found:
        case ["results", [*results]] if len(results) == len(calls):
            return ["results", results]
        case ["ended", str(why)]:
            return ["ended", why]
        case _:
            return ["ended", "what it wrote is no result"]


def _ask_child(program: str, calls: list[str], *, limit_seconds: float) -> Any:
    """The child's text, unchecked, or `["ended", why]`; `["unsafe", why]`: it could not be shut in.

    Raises:
        KilledError: the child was killed from outside.
    """
    cpu_seconds = _cpu_seconds(limit_seconds)
    wall_seconds = cpu_seconds * WALL_TO_CPU_SECONDS
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            run_shut_in(program, calls, write_end, limit_seconds)
        finally:
            os._exit(1)
    # Else this process holds the pipe open itself, and its end would never be seen.
    os.close(write_end)
    try:
        text, is_whole = _read_all(read_end, time.monotonic() + wall_seconds)
    finally:
        os.close(read_end)
    status, used_seconds, is_killed_here = _end(pid, END_SECONDS if is_whole else 0.0)
    if not is_whole and len(text) <= MAX_RESULT_BYTES:
        # A program can only compute: a machine that gave it no CPU time has ended it.
        raise KilledError(f"its process got {used_seconds:.1f} s of CPU time in {wall_seconds:g} s")
    if status == signal.SIGKILL and not is_killed_here and used_seconds < CPU_SHARE * cpu_seconds:
        raise KilledError("its process was killed by SIGKILL")
    if not text or not is_whole:
        return ["ended", _explain(status, limit_seconds)]
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return ["ended", "what it wrote is no result"]


def _cpu_seconds(limit_seconds: float) -> int:
    """The kernel's limit, which is in whole seconds, and no higher than the one that holds already."""
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    seconds = max(1, math.ceil(limit_seconds))
    return seconds if hard == resource.RLIM_INFINITY else min(seconds, hard)


def _read_all(descriptor: int, until: float) -> tuple[bytes, bool]:
    """Everything up to the end; False: there was too much, or it took too long."""
    parts: list[bytes] = []
    size = 0
    while True:
        ready, _, _ = select.select([descriptor], [], [], max(0.0, until - time.monotonic()))
        part = os.read(descriptor, MAX_RESULT_BYTES) if ready else b""
        if not ready:
            return b"".join(parts), False
        if not part:
            return b"".join(parts), True
        parts.append(part)
        size += len(part)
        if size > MAX_RESULT_BYTES:
            return b"".join(parts), False


def _end(pid: int, seconds: float) -> tuple[int, float, bool]:
    """A child's status, its CPU time, and whether it was killed here: after so many seconds it went on."""
    until = time.monotonic() + seconds
    while True:
        is_late = time.monotonic() >= until
        if is_late:
            os.kill(pid, signal.SIGKILL)  # which alone cannot be handled by it
        ended, status, usage = os.wait4(pid, 0 if is_late else os.WNOHANG)
        if ended:
            return status, usage.ru_utime + usage.ru_stime, is_late
        time.sleep(0.001)


def _explain(status: int, limit_seconds: float) -> str:
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return f"no result within {limit_seconds:g} s of CPU time, or too much of it"
    return f"it ended its process (status {status})"


def run_shut_in(program: str, calls: list[str], pipe: int, limit_seconds: float) -> None:
    """Run the program in the child, where nothing that it can do to the process is of use to it."""
    # Every handle but the pipe: a filter on system calls does not take away what is open already.
    os.closerange(0, pipe)
    os.closerange(pipe + 1, 65536)
    sys.stdin, sys.stdout, sys.stderr = io.StringIO(), io.StringIO(), io.StringIO()
    bounds = (
        (resource.RLIMIT_CPU, _cpu_seconds(limit_seconds)),  # hard and soft alike: the kernel kills
        (resource.RLIMIT_AS, MAX_MEMORY_BYTES),
        # Belt and braces: a file cannot be opened, and if it could, nothing could be written to it.
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    )
    try:
        check_platform()
        for kind, limit in bounds:
            hard = resource.getrlimit(kind)[1]
            bound = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
            resource.setrlimit(kind, (bound, bound))
        shut_in()
    except (OSError, ValueError) as error:
        _write(pipe, json.dumps(["unsafe", str(error)]))
        return
    _write(pipe, json.dumps(["results", _results(program, calls)]))


def _write(pipe: int, text: str) -> None:
    rest = text.encode()
    while rest:
        rest = rest[os.write(pipe, rest) :]


def _results(program: str, calls: list[str]) -> list[list[Any]]:
    # No `__main__`: a program's own main part is not asked for.
    names: dict[str, Any] = {"__name__": "program"}
    try:
        exec(compile(program, "program", "exec"), names)
    except BaseException as error:  # whatever a program raises, SystemExit too
        return [["error", f"the program raised {type(error).__name__}"] for _ in calls]
    results: list[list[Any]] = []
    for call in calls:
        function = call.partition("(")[0]
        if function not in names:  # Python's own `max` would pass for the program's
            results.append(["error", f"the program defines no {function}"])
            continue
        try:
            # A copy: no call may bind a name for the next one.
            results.append(["value", encode(eval(call, dict(names)))])
        except BaseException as error:
            results.append(["error", f"{call} raised {type(error).__name__}"])
    return results


def encode(value: Any) -> Any:
    """A plain value as JSON that keeps its types: True is not 1, and 1 is not 1.0.

    Raises:
        ValueError: it is no plain value; an object could call itself equal to anything.
    """
    kind = type(value)
    if kind in (int, float):
        return [kind.__name__, repr(value + 0)]  # -0.0 equals 0.0
    if kind in (bool, str) or value is None:
        return value
    if kind in (list, tuple):
        return [kind.__name__, [encode(each) for each in value]]
    if kind is dict:
        pairs = [[encode(key), encode(each)] for key, each in value.items()]
        return ["dict", sorted(pairs, key=json.dumps)]  # equal in any order
    raise ValueError(f"a {kind.__name__} is no plain value")


def check_platform() -> None:
    """Refuse a system whose calls are not known here.

    Raises:
        OSError: names it.
    """
    if platform.machine() not in ALLOWED or sys.platform != "linux":
        raise OSError(f"programs run on Linux on x86-64 or 64-bit Arm only, not on {platform.machine()}")


def shut_in() -> None:
    """Let this process make the allowed system calls alone, from now on and for good, and end it with its
    parent. Only on a system that `check_platform` lets pass.

    Raises:
        OSError: this system cannot; nothing may be run then.
    """
    architecture, allowed = ALLOWED[platform.machine()]
    steps = [
        (_LOAD, 0, 0, 4),  # seccomp_data.arch
        (_EQUAL, 1, 0, architecture),
        # The numbers of another architecture mean other calls, and would pass for those that are allowed.
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, 0),  # seccomp_data.nr
        # A match jumps over the comparisons that are left and the refusal; jumps count from the next step.
        *((_EQUAL, len(allowed) - place, 0, number) for place, number in enumerate(allowed)),
        (_RETURN, 0, 0, _REFUSE),
        (_RETURN, 0, 0, _ALLOW),
    ]
    code = b"".join(struct.pack("HBBI", *step) for step in steps)
    program = ctypes.create_string_buffer(code, len(code))

    class Filter(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_void_p))

    libc = ctypes.CDLL(None, use_errno=True)
    found = Filter(len(steps), ctypes.addressof(program))
    # A program that sleeps uses no CPU time, so that no limit would end it once its parent was killed.
    _end_with_parent()
    # Without rights of its own, a process may set a filter only once it can gain no others.
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(
        _PR_SET_SECCOMP, _FILTER_MODE, ctypes.byref(found), 0, 0
    ):
        raise OSError(ctypes.get_errno(), "the kernel refuses a seccomp filter")


def _end_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


if __name__ == "__main__":
    main(sys.argv[1:])
