"""Progress lines that a person can follow: phase, step, the latest numbers, time left.

Used by every loop that may take more than a few seconds. One line looks like
`train_cooper 12/20 verify_rm_reward=0.61 rule_accuracy=0.44 eta 0:18`. On a terminal there is a bar instead,
which redraws itself; a log file, a dashboard and a pipe get the lines.
"""

import logging
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from cooper_rl.addresses import RedactingFormatter, redact_tracebacks

T = TypeVar("T")

SECONDS_BETWEEN_LINES = 2.0


def show_log() -> None:
    """Log to standard error, every line with its time, and of libraries what a person can use.

    Addresses in it are redacted.
    """
    handler = AboveBars()
    handler.setFormatter(RedactingFormatter(logging.Formatter("%(asctime)s %(message)s", datefmt="%H:%M:%S")))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.captureWarnings(True)
    redact_tracebacks()
    for library in ("httpx", "httpx2"):  # one line per request otherwise; the hub's has the second
        logging.getLogger(library).setLevel(logging.WARNING)
    logging.getLogger("huggingface_hub").propagate = False  # it shows its lines itself


class AboveBars(logging.StreamHandler[Any]):
    """Writes to standard error, above the bars that are drawn there."""

    def emit(self, record: logging.LogRecord) -> None:
        if not _is_terminal():
            super().emit(record)
            return
        from tqdm import tqdm

        with tqdm.external_write_mode(file=sys.stderr):
            super().emit(record)


def _is_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()


def _open_bar(name: str, total: int | None) -> Any:
    """A bar on a terminal; None elsewhere, and where nobody knows how long it gets."""
    if total is None or not _is_terminal():
        return None
    from tqdm import tqdm

    return tqdm(total=total, desc=name, file=sys.stderr, dynamic_ncols=True)


class Progress:
    """Counts towards `total`: a bar on a terminal, else a line at most every two seconds and at the end.

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
        self._first: tuple[int, float] | None = None
        self._last_line = self._started
        self._bar = _open_bar(name, total)

    def advance(self, n: int = 1, **values: float | str) -> None:
        """Count `n` more units as done; `values` are shown as they are at this moment."""
        self._done += n
        now = time.monotonic()
        # On a GPU the first step compiles kernels, which says nothing of the time that the others take.
        self._first = self._first or (self._done, now)
        is_last = self._done == self._total
        if self._bar is not None:
            self._bar.set_postfix({key: _short(value) for key, value in values.items()}, refresh=False)
            self._bar.update(n)
            if is_last:
                self._bar.close()
        elif is_last or now - self._last_line >= SECONDS_BETWEEN_LINES:
            self._last_line = now
            self._logger.info("%s", self._line(now, values))

    def _line(self, now: float, values: dict[str, float | str]) -> str:
        words = [self._name, str(self._done) if self._total is None else f"{self._done}/{self._total}"]
        words += [f"{name}={_short(value)}" for name, value in values.items()]
        if self._total is not None and self._done:
            done, started = self._first if self._first and self._first[0] < self._done else (0, self._started)
            seconds_left = (now - started) / (self._done - done) * max(self._total - self._done, 0)
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
