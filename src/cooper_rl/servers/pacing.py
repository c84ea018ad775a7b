"""Pacing: as many requests at a time as a server takes (rows 3 and 11).

A server that limits its rate says 429. Every thread then pauses for as long as it asks, and half as many
requests are made at a time; each answer allows a little more again (additive increase, multiplicative
decrease: Chiu and Jain 1989). `servers/chat.py` tries again.
"""

import threading
import time
from collections.abc import Generator
from contextlib import contextmanager

SLOWED_SECONDS = 1.0
"""Refusals so soon after another are answers to requests that were on their way: they halve nothing."""


class Pace:
    """Admits requests; shared by the threads of one client."""

    def __init__(self, most: int) -> None:
        """`most` requests at a time, while the server refuses none."""
        self._most = most
        self._allowed = float(most)
        self._under_way = 0
        self._resume_at = 0.0
        self._slowed_until = 0.0
        self._changed = threading.Condition()

    @property
    def allowed(self) -> int:
        """Requests at a time, by now."""
        with self._changed:
            return int(self._allowed)

    @contextmanager
    def turn(self) -> Generator[None]:
        """Wait until one more request may be made; it is under way inside the block."""
        with self._changed:
            # A loop: a condition wakes all waiting threads, of which one finds room.
            while self._under_way >= int(self._allowed) or time.monotonic() < self._resume_at:
                left = self._resume_at - time.monotonic()
                self._changed.wait(left if left > 0 else None)
            self._under_way += 1
        try:
            yield
        finally:
            with self._changed:
                self._under_way -= 1
                self._changed.notify_all()

    def resume(self) -> None:
        """End a pause: callers that wait go on."""
        with self._changed:
            self._resume_at = 0.0
            self._changed.notify_all()

    def speed_up(self) -> None:
        """A request was answered: `allowed` answers allow one more at a time."""
        with self._changed:
            # 1 / allowed for each answer is one more per round of them: additive increase, whatever the
            # number of threads.
            self._allowed = min(self._most, self._allowed + 1 / self._allowed)
            self._changed.notify_all()

    def slow_down(self, pause: float) -> None:
        """A request was refused for its rate: nothing is asked for `pause` seconds, and half as much then."""
        with self._changed:
            now = time.monotonic()
            # Never earlier: of several refusals the longest pause counts.
            self._resume_at = max(self._resume_at, now + pause)
            if now > self._slowed_until:
                # At least one, or nobody would be left to find out that the server takes requests again.
                self._allowed = max(1.0, self._allowed / 2)
            self._slowed_until = self._resume_at + SLOWED_SECONDS
            self._changed.notify_all()
