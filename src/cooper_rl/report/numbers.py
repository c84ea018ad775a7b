"""Numbers and long texts as pages and reports write them."""

import math
from collections.abc import Sequence

from cooper_rl.schema.reports import Interval

MAX_SHOWN_CHARS = 1200
UNKNOWN = "–"
"""In the place of a number that is not finite: nobody measured it."""


def shorten(text: str) -> str:
    """Text over 1200 characters keeps its first 500 and last 600; says how many it lost."""
    if len(text) <= MAX_SHOWN_CHARS:
        return text
    return f"{text[:500]}\n[... {len(text) - 1100:,} characters left out ...]\n{text[-600:]}"


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
