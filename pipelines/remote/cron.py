"""Cron expressions as Kubeflow's scheduler reads them: six fields, seconds first, times in UTC.

The scheduler takes five fields without a word and then runs every hour, so they are refused here. The grammar
is that of robfig/cron v1: `*`, `?`, numbers, names, ranges, steps, lists. `@daily` and the like are refused.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from itertools import islice
from typing import NamedTuple

from cooper_rl.errors import ConfigError

MAX_DAYS_AHEAD = 366 * 8
"""A 29 February may be eight years away."""


class _Field(NamedTuple):
    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()


_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_FIELDS = (
    _Field("second", 0, 59),
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of month", 1, 31),
    _Field("month", 1, 12, _MONTHS),
    _Field("day of week", 0, 6, _DAYS),
)


@dataclass(frozen=True)
class Cron:
    """An expression that was read."""

    text: str
    values: tuple[frozenset[int], ...]
    """Allowed seconds, minutes, hours, days of month, months, days of week (0 is Sunday)."""
    is_any_day_of_month: bool
    is_any_day_of_week: bool

    def words(self) -> str:
        """The expression in English, e.g. `At 02:00`."""
        from cron_descriptor import FormatError, Options, get_description

        options = Options()
        options.use_24hour_time_format = True
        try:
            return get_description(self.text, options)
        except FormatError:  # it has no words for some expressions that Kubeflow reads
            return self.text

    def next_times(self, after: datetime, count: int) -> list[datetime]:
        """The next times in UTC, at most `count`; fewer where the days do not exist."""
        return list(islice(self._times(after.astimezone(UTC)), count))

    def _times(self, after: datetime) -> Iterator[datetime]:
        seconds, minutes, hours = (sorted(found) for found in self.values[:3])
        for offset in range(MAX_DAYS_AHEAD):
            day = after.date() + timedelta(days=offset)
            if not self._fits(day):
                continue
            for moment in (time(h, m, s) for h in hours for m in minutes for s in seconds):
                found = datetime.combine(day, moment, tzinfo=UTC)
                if found > after:
                    yield found

    def _fits(self, day: date) -> bool:
        days, months, weekdays = self.values[3:]
        if day.month not in months:
            return False
        in_month, in_week = day.day in days, day.isoweekday() % 7 in weekdays
        # As in every cron: two restricted fields for the day mean one or the other.
        if self.is_any_day_of_month or self.is_any_day_of_week:
            return in_month and in_week
        return in_month or in_week


def parse_cron(text: str) -> Cron:
    """Read an expression of six fields.

    Raises:
        ConfigError: naming the field and what it may hold.
    """
    parts = text.split()
    if len(parts) == 5:
        raise ConfigError(
            f"cron {text!r} has five fields; Kubeflow wants six, seconds first, and would run it every hour: "
            f"write '0 {' '.join(parts)}'"
        )
    if len(parts) != 6:
        raise ConfigError(
            f"cron {text!r} has {len(parts)} fields; write six: second minute hour day-of-month month "
            "day-of-week, e.g. '0 0 2 * * *' for every day at 02:00 UTC"
        )
    values = tuple(_read(part, field, text) for part, field in zip(parts, _FIELDS, strict=True))
    found = Cron(
        text=" ".join(parts),
        values=values,
        is_any_day_of_month=_has_any(parts[3]),
        is_any_day_of_week=_has_any(parts[5]),
    )
    if not found.next_times(datetime.now(UTC), 1):
        raise ConfigError(f"cron {text!r} never comes: that day is in none of its months")
    return found


def _has_any(part: str) -> bool:
    # In a list too: the scheduler sets one mark for the whole field.
    return any(piece[0] in "*?" for piece in part.split(","))


def _read(part: str, field: _Field, text: str) -> frozenset[int]:
    allowed: set[int] = set()
    for piece in part.split(","):
        span, has_step, step_text = piece.partition("/")
        step = _number(step_text, field, text) if has_step else 1
        if span in ("*", "?"):
            low, high = field.low, field.high
        else:
            first, has_end, last = span.partition("-")
            low = _number(first, field, text)
            high = _number(last, field, text) if has_end else field.high if has_step else low
        if step < 1 or not field.low <= low <= high <= field.high:
            raise _refusal(piece, field, text)
        allowed |= set(range(low, high + 1, step))
    return frozenset(allowed)


def _number(word: str, field: _Field, text: str) -> int:
    if word.lower() in field.names:
        return field.names.index(word.lower()) + field.low
    if not re.fullmatch(r"[0-9]{1,2}", word):
        raise _refusal(word, field, text)
    return int(word)


def _refusal(word: str, field: _Field, text: str) -> ConfigError:
    names = f" or {field.names[0].upper()}-{field.names[-1].upper()}" if field.names else ""
    return ConfigError(
        f"cron {text!r}: {word!r} is no {field.name}; write {field.low}-{field.high}{names}, *, a range, "
        "a list or a step such as */5"
    )
