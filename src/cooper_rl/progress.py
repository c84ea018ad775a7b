"""Progress lines that a person can follow: phase, step, the latest numbers, time left.

Used by every loop that may take more than a few seconds. One line looks like
`train_cooper 12/20 reward=0.61 rule=0.44 eta 0:18`. Deliberately left out: bars that redraw
themselves, which a log file, a dashboard and a screen reader cannot show.
"""

import logging
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

from cooper_rl.addresses import RedactingFormatter

T = TypeVar("T")

SECONDS_BETWEEN_LINES = 2.0


def show_log() -> None:
    """Log to standard error, every line with its time, and of libraries what a person can use.

    Addresses in it are redacted.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(RedactingFormatter("%(asctime)s %(message)s", datefmt="%H:%M:%S"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.captureWarnings(True)
    logging.getLogger("httpx").setLevel(logging.WARNING)  # one line per request otherwise
    logging.getLogger("huggingface_hub").propagate = False  # it shows its lines itself


class Progress:
    """Counts towards `total` and logs at most every two seconds, and always at the end.

    Args:
        name: The phase, as the first word of the line.
        total: How many units there are; None when nobody knows, then no time left is shown.
        logger: The caller's own logger.
    """

    def __init__(self, name: str, total: int | None, logger: logging.Logger) -> None:
        self._name = name
        self._total = total
        self._logger = logger
        self._done = 0
        self._started = time.monotonic()
        self._last_line = self._started

    def advance(self, n: int = 1, **values: float | str) -> None:
        """Count `n` more units as done; `values` are shown as they are at this moment."""
        self._done += n
        now = time.monotonic()
        is_last = self._done == self._total
        if is_last or now - self._last_line >= SECONDS_BETWEEN_LINES:
            self._last_line = now
            self._logger.info("%s", self._line(now, values))

    def _line(self, now: float, values: dict[str, float | str]) -> str:
        words = [self._name, str(self._done) if self._total is None else f"{self._done}/{self._total}"]
        words += [f"{name}={_short(value)}" for name, value in values.items()]
        if self._total is not None and self._done:
            seconds_left = (now - self._started) / self._done * max(self._total - self._done, 0)
            words.append(f"eta {clock(seconds_left)}")
        return " ".join(words)


def track(iterable: Iterable[T], *, name: str, total: int | None, logger: logging.Logger) -> Iterator[T]:
    """Yield the items unchanged, in order, and log progress after each is dealt with."""
    progress = Progress(name, total, logger)
    for item in iterable:
        yield item
        progress.advance()


def clock(seconds: float) -> str:
    """A duration as `m:ss`, or `h:mm:ss` from an hour on."""
    whole = round(seconds)
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _short(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.4g}"
