"""Progress lines: what they say, and how rarely."""

import io
import logging
import sys

import pytest

from cooper_rl import progress
from cooper_rl.progress import Progress, clock, track

logger = logging.getLogger("cooper_rl.test_progress")


def test_a_fast_loop_logs_its_last_step_only(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    counter = Progress("train_cooper", 20, logger)
    for step in range(20):
        counter.advance(reward=step / 20, phase="update")
    assert caplog.messages == ["train_cooper 20/20 reward=0.95 phase=update eta 0:00"]


def test_a_slow_loop_logs_with_the_time_left(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twelve of twenty steps took 27 seconds: eight more take 8 * 27 / 12 = 18 seconds."""
    caplog.set_level(logging.INFO)
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    counter = Progress("train_cooper", 20, logger)
    now[0] += 27.0
    counter.advance(12, reward=0.61)
    now[0] += 1.9
    counter.advance(reward=0.7)
    assert caplog.messages == ["train_cooper 12/20 reward=0.61 eta 0:18"]


def test_the_first_step_says_nothing_of_the_time_left(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It compiled kernels for 92 seconds; the next two took 5 each, and so will the last three."""
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 6.0)
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    counter = Progress("train_cooper", 6, logger)
    for seconds in (92.0, 5.0, 5.0):
        now[0] += seconds
        counter.advance()
    assert caplog.messages == ["train_cooper 1/6 eta 7:40", "train_cooper 3/6 eta 0:15"]


def test_an_unknown_total_shows_no_time_left(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)
    Progress("collect", None, logger).advance(7)
    assert caplog.messages == ["collect 7"]


def test_track_yields_every_item_in_order_and_logs_the_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    assert list(track("abc", name="read", total=3, logger=logger)) == ["a", "b", "c"]
    assert caplog.messages == ["read 3/3 eta 0:00"]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0:00"), (18.4, "0:18"), (61, "1:01"), (3599.6, "1:00:00"), (7325, "2:02:05")]
)
def test_a_duration_reads_like_a_clock(seconds: float, text: str) -> None:
    assert clock(seconds) == text


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_a_bar_with_numbers_and_the_log_stands_above_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    handler = progress.AboveBars(terminal)
    counter = Progress("train_cooper", 2, logger)
    counter.advance(reward=0.61234)
    handler.emit(logging.makeLogRecord({"msg": "saved"}))
    counter.advance(reward=0.7)
    shown = terminal.getvalue()
    assert "saved\n" in shown
    assert "train_cooper: 100%" in shown
    assert "2/2 [00:" in shown
    assert "reward=0.7" in shown
    assert caplog.messages == []


def test_a_terminal_gets_lines_where_the_end_is_unknown(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)
    Progress("collect", None, logger).advance(7)
    assert caplog.messages == ["collect 7"]
