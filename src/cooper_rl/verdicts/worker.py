"""The processes that do algebra for the rule verifier: `python -m cooper_rl.verdicts.worker`.

One nursery process imports math-verify once and forks a worker per socket. A worker arms a CPU timer whose
signal ends the process, so no text can outlive its limit: not in C code, not in a big integer. The nursery
reports what happened on the worker's socket and forks the next one, which goes on with the next request. A
worker that was killed from outside has lost the request, which is no word on the text.
Started and spoken to by `verdicts/rule.py` only. Windows has no fork and cannot run it.

A message is a 4-byte length and that many bytes of JSON; requests and replies are in order.
"""

import json
import mmap
import os
import resource
import signal
import socket
import struct
import sys
from typing import Any, NamedTuple

from cooper_rl.config.data import AnswerPolicy
from cooper_rl.verdicts.answers.verify import Comparison, compare_answers

MAX_MEMORY_BYTES = 512 * 1024**2
"""Address space of one worker; its libraries take about 80 MiB. A huge power ends as a verdict, and hostile
completions in all workers at once fit in the container (`verdicts/pool.py: fit_workers`)."""
WALL_TO_CPU_SECONDS = 12
"""Wall clock is only a backstop, for a machine that stands still; CPU time does not depend on what else it
does."""
LOST = "lost"
"""First word of the reply to a request whose process was killed from outside; the second says by what. A
third is the number of the request on its socket, whose own reply may have come before."""
_CRASHES = {signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGFPE, signal.SIGILL}
"""Signals by which a text ends its process, beside that of the CPU timer."""


class _Seat(NamedTuple):
    """The place of one worker after the other."""

    channel: socket.socket
    is_asked: mmap.mmap
    """One byte that nursery and worker share: 1 while a request waits for its reply."""


def send_message(channel: socket.socket, message: Any) -> None:
    """Send one message whole."""
    body = json.dumps(message).encode()
    channel.sendall(struct.pack("!I", len(body)) + body)


def receive_message(channel: socket.socket) -> Any | None:
    """Receive one message, and not a byte of the next; None when the other side has closed."""
    header = _receive_exactly(channel, 4)
    if header is None:
        return None
    body = _receive_exactly(channel, struct.unpack("!I", header)[0])
    return None if body is None else json.loads(body)


def _receive_exactly(channel: socket.socket, count: int) -> bytes | None:
    parts: list[bytes] = []
    while count:
        part = channel.recv(count)
        if not part:
            return None
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def main(arguments: list[str]) -> None:
    """The nursery: keep one worker alive for each socket until all sockets are closed."""
    limit_seconds = float(arguments[0])
    policy = AnswerPolicy.model_validate_json(arguments[1])
    # Imported before the forks, so that every worker, also a replacement, starts in a millisecond.
    import cooper_rl.verdicts.answers.symbols as _  # noqa: F401 imported for the fork's sake

    _limit_memory()
    seats = [_Seat(socket.socket(fileno=int(number)), mmap.mmap(-1, 1)) for number in arguments[2:]]
    workers = {_fork(seat, limit_seconds, policy): seat for seat in seats}
    while workers:
        # A worker dies by its limits: the signal's default action needs no code that still works in it.
        pid, status = os.wait()
        seat = workers.pop(pid)
        # The other side has closed the socket, at which a worker ends by itself.
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0:
            continue
        # Only to a request: after a reply that nobody waits for, each would be taken for the next one's.
        if seat.is_asked[0]:
            try:
                # On the dead worker's socket, in its place: the caller waits there for its one reply.
                send_message(seat.channel, _reply_to_end(status, limit_seconds))
            except OSError:
                continue
        workers[_fork(seat, limit_seconds, policy)] = seat


def _limit_memory() -> None:
    """Bound the address space of this process and of the workers that it forks, where the system can.

    macOS refuses the limit. A failure in the workers would make every comparison `unparsable`; here it costs
    the bound alone, and is said.
    """
    try:
        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    except (ValueError, OSError) as error:
        sys.stderr.write(
            f"rule verifier: memory is not limited to {MAX_MEMORY_BYTES // 1024**2} MiB a worker, since this "
            f"system ({sys.platform}) refuses that ({error}); the time limit of each comparison holds\n"
        )


def _reply_to_end(status: int, limit_seconds: float) -> list[str]:
    number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
    if number == signal.SIGPROF:
        return ["unparsable", f"no verdict within {limit_seconds:g} s"]
    if number is None or number in _CRASHES:
        return ["unparsable", f"the comparison ended its process (status {status})"]
    # SIGALRM too: a comparison never sleeps, so that a machine which gave it no CPU time has ended it.
    return [LOST, f"its process was killed by {signal.Signals(number).name}"]


def _fork(seat: _Seat, limit_seconds: float, policy: AnswerPolicy) -> int:
    seat.is_asked[0] = 0
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        _work(seat, limit_seconds, policy)
        status = 0
    finally:
        os._exit(status)


def _work(seat: _Seat, limit_seconds: float, policy: AnswerPolicy) -> None:
    while (request := receive_message(seat.channel)) is not None:
        seat.is_asked[0] = 1
        # CPU time, which load does not change: a verdict must not depend on what else the machine does.
        signal.setitimer(signal.ITIMER_PROF, limit_seconds)
        # And a bound on the clock, for a comparison that waits for memory.
        signal.setitimer(signal.ITIMER_REAL, limit_seconds * WALL_TO_CPU_SECONDS)
        check = compare_answers(Comparison(*request), policy)
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        # Before the reply: whoever is killed between the two costs an error, and no wrong verdict.
        seat.is_asked[0] = 0
        send_message(seat.channel, list(check))


if __name__ == "__main__":
    main(sys.argv[1:])
