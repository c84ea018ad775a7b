"""Cron as Kubeflow reads it: what is refused, and when it comes."""

from datetime import UTC, datetime

import pytest

from cooper_rl.errors import ConfigError
from pipelines.remote.cron import parse_cron

SATURDAY = datetime(2026, 11, 21, 13, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "times"),
    [
        ("0 0 2 * * *", ["2026-11-22 02:00:00", "2026-11-23 02:00:00", "2026-11-24 02:00:00"]),
        ("0 */30 * * * *", ["2026-11-21 13:30:00", "2026-11-21 14:00:00", "2026-11-21 14:30:00"]),
        ("30 15 4 ? * MON-FRI", ["2026-11-23 04:15:30", "2026-11-24 04:15:30", "2026-11-25 04:15:30"]),
        ("0 0 0 1 jan *", ["2027-01-01 00:00:00", "2028-01-01 00:00:00", "2029-01-01 00:00:00"]),
        ("0 0 0 29 2 *", ["2028-02-29 00:00:00", "2032-02-29 00:00:00"]),
        # The 13th, or any Friday, as in every cron when both are restricted.
        ("0 0 0 13 * 5", ["2026-11-27 00:00:00", "2026-12-04 00:00:00", "2026-12-11 00:00:00"]),
        # A star in a list restricts nothing either: Fridays alone.
        ("0 0 0 13,*/1 * 5", ["2026-11-27 00:00:00", "2026-12-04 00:00:00", "2026-12-11 00:00:00"]),
        ("0 0 6/8 * * 0", ["2026-11-22 06:00:00", "2026-11-22 14:00:00", "2026-11-22 22:00:00"]),
        ("0 0 13 21 11 *", ["2027-11-21 13:00:00", "2028-11-21 13:00:00", "2029-11-21 13:00:00"]),
        ("0 5,10 1 * * *", ["2026-11-22 01:05:00", "2026-11-22 01:10:00", "2026-11-23 01:05:00"]),
    ],
)
def test_the_next_times_are_those_of_the_calendar(text: str, times: list[str]) -> None:
    assert [f"{found:%Y-%m-%d %H:%M:%S}" for found in parse_cron(text).next_times(SATURDAY, 3)] == times


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0 2 * * *", "has five fields; .* would run it every hour: write '0 0 2 \\* \\* \\*'"),
        ("@daily", "has 1 fields; write six: second minute hour"),
        ("0 0 24 * * *", "'24' is no hour; write 0-23"),
        ("60 0 0 * * *", "'60' is no second"),
        ("0 0 0 0 * *", "'0' is no day of month; write 1-31"),
        ("0 0 0 * 13 *", "'13' is no month; write 1-12 or JAN-DEC"),
        ("0 0 0 * * 7", "'7' is no day of week; write 0-6 or SUN-SAT"),
        ("0 0 0 L * *", "'L' is no day of month"),
        ("0 0 5-3 * * *", "'5-3' is no hour"),
        ("0 */0 * * * *", r"'\*/0' is no minute"),
        ("0 -5 * * * *", "'' is no minute"),
        ("0 0 0 31 2 *", "never comes: that day is in none of its months"),
    ],
)
def test_what_kubeflow_would_misread_is_refused_with_the_remedy(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_cron(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [("0 0 2 * * *", "At 02:00"), ("0 0 4 ? * MON-FRI", "At 04:00, Monday through Friday")],
)
def test_an_expression_is_said_in_words(text: str, words: str) -> None:
    assert parse_cron(text).words().startswith(words)


def test_an_expression_without_words_is_shown_as_it_is() -> None:
    """`cron_descriptor` reads fewer expressions than Kubeflow."""
    assert parse_cron("0 0 2 5 * *,1").words() == "0 0 2 5 * *,1"
