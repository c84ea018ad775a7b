"""Says that something outside is waited for: a server that is away, slow, or answers with errors.

Retries and time-outs belong to whoever asks; nothing here ends a wait. The log gets a line at the first
failure, and one when nothing has come for some seconds, which is said again after twice as long each time.
"""

import logging
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager

MAX_SECONDS = 14 * 86400
"""The longest time of a setting. The system counts milliseconds, and refuses to wait for more than 24 days of
them."""
FIRST_SECONDS = 10.0
"""Of silence, before the first word about it."""
SECONDS_BETWEEN_FAILURES = 60.0
"""A server that answers now and then may fail often."""


class Waiting:
    """The wait for one place; its requests may come from many threads.

    Args:
        place: What is asked, as a log may show it.
        logger: The caller's own logger.
        limit: How long it is asked, such as `storage.retry_seconds=300`.
        first_seconds: How long an answer may take before that is worth a word.
    """

    def __init__(
        self, place: str, logger: logging.Logger, *, limit: str, first_seconds: float = FIRST_SECONDS
    ) -> None:
        self._place, self._logger, self._limit = place, logger, limit
        self._first_seconds = first_seconds
        self._changed = threading.Condition()
        self._num_asked = 0
        self._is_watched = False
        self._since = 0.0
        """When the newest answer came, or when the silence began."""
        self._next_word = first_seconds
        """Seconds of silence until the next line."""
        self._reason: str | None = None
        self._failure_at = 0.0
        """When a failure may be said again."""
        self._is_told = False

    @contextmanager
    def asked(self) -> Generator[None]:
        """A request is under way in the block, with its retries; one that raises had no answer."""
        with self._changed:
            self._num_asked += 1
            if self._num_asked == 1:
                self._begin()
            if not self._is_watched:
                self._is_watched = True
                # A daemon, and only while something is asked: no process is kept from its end or from
                # forking.
                threading.Thread(target=self._watch, name=f"wait for {self._place}", daemon=True).start()
        is_answered = False
        try:
            yield
            is_answered = True
        finally:
            with self._changed:
                self._num_asked -= 1
                if is_answered:
                    self._end_silence()
                self._changed.notify_all()

    def heard(self) -> None:
        """A part of an answer came, or a part of a request was taken."""
        with self._changed:
            self._end_silence()

    def failed(self, reason: object) -> None:
        """A try failed, and another one follows."""
        now = time.monotonic()
        with self._changed:
            self._reason = " ".join(str(reason).split())[:300]
            if now < self._failure_at:
                return
            self._failure_at = now + SECONDS_BETWEEN_FAILURES
            self._is_told = True
            self._logger.warning("%s: %s; asking again (%s)", self._place, self._reason, self._limit)

    def _begin(self) -> None:
        self._since, self._next_word = time.monotonic(), self._first_seconds
        self._reason, self._is_told = None, False

    def _end_silence(self) -> None:
        if self._is_told:
            self._logger.warning(
                "%s: answers again, after %.0f s", self._place, time.monotonic() - self._since
            )
        self._begin()

    def _watch(self) -> None:
        with self._changed:
            while self._num_asked:
                left = self._since + self._next_word - time.monotonic()
                if left > 0:
                    self._changed.wait(left)
                    continue
                self._is_told = True
                last = f"; the last try: {self._reason}" if self._reason else ""
                self._logger.warning(
                    "%s: no good answer for %.0f s; waiting (%s)%s",
                    self._place,
                    self._next_word,
                    self._limit,
                    last,
                )
                self._next_word *= 2
            self._is_watched = False
