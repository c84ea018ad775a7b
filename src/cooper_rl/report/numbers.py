"""Numbers and long texts as pages and reports write them."""

import math
from collections.abc import Sequence

from markupsafe import escape

from cooper_rl.schema.reports import Interval

NUM_KEPT_CHARS = (1100, 770, 550, 330)
"""Characters of a long text that are shown: the first number that takes no more than MAX_SHOWN_BYTES."""
MAX_SHOWN_BYTES = 2400
"""Bytes of a text on a page, where a quote has five and a Chinese character three."""
UNKNOWN = "–"
"""In the place of a number that is not finite: nobody measured it."""


def shorten(text: str) -> str:
    """Text over 1200 characters keeps its first 500 and last 600, and says how many it lost. A text that
    takes more bytes on a page than 1200 plain letters do keeps less."""
    shown = text
    for num_kept in NUM_KEPT_CHARS:
        if len(text) > num_kept + 100:
            head = num_kept * 5 // 11
            lost = len(text) - num_kept
            shown = f"{text[:head]}\n[... {lost:,} characters left out ...]\n{text[head - num_kept :]}"
        if len(escape(shown).encode()) <= MAX_SHOWN_BYTES:
            break
    return shown


def percent(value: float) -> str:
    """0.4105 as `41.0 %`."""
    return f"{100 * value:.1f} %" if math.isfinite(value) else UNKNOWN


def points(value: float) -> str:
    """A difference of shares: 0.031 as `+3.1`, with a true minus sign."""
    return f"{100 * value:+.1f}".replace("-", "−") if math.isfinite(value) else UNKNOWN


def span(interval: Interval) -> str:
    """`35.2 to 47.1 %`."""
    is_known = math.isfinite(interval.low) and math.isfinite(interval.high)
    return f"{100 * interval.low:.1f} to {100 * interval.high:.1f} %" if is_known else UNKNOWN


def in_points(change: Interval) -> str:
    """`+3.1 points (+0.4 to +5.8)`."""
    return f"{points(change.value)} points ({points(change.low)} to {points(change.high)})"


def with_interval(value: Interval | None) -> str:
    """`41.0 % (35.2 to 47.1 %)`; a dash for what is not known."""
    return "-" if value is None else f"{percent(value.value)} ({span(value)})"


def name_steps(steps: Sequence[int]) -> str:
    """`step 3`, `steps 3 and 5`, `steps 3, 5 and 8`."""
    *first, last = map(str, steps)
    return f"steps {', '.join(first)} and {last}" if first else f"step {last}"
