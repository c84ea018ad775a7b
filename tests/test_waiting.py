"""What a person is told while a server is waited for."""

import logging
import threading
import time

import pytest

from cooper_rl.waiting import Waiting
from tests.waiting import wait_until

logger = logging.getLogger("cooper_rl.test_waiting")


@pytest.fixture
def waiting() -> Waiting:
    return Waiting("http://judge:8000/v1", logger, limit="max_attempts=5", first_seconds=0.1)


def test_silence_is_said_again_after_twice_as_long(
    waiting: Waiting, caplog: pytest.LogCaptureFixture
) -> None:
    asked_at = time.time()
    with waiting.asked():
        wait_until(lambda: len(caplog.messages) == 3)
    # A busy machine may only delay a line.
    said = [record.created - asked_at for record in caplog.records[:3]]
    assert all(seconds >= least for seconds, least in zip(said, (0.09, 0.19, 0.39), strict=True))
    assert caplog.messages[0] == ("http://judge:8000/v1: no good answer for 0 s; waiting (max_attempts=5)")
    assert caplog.messages[-1].startswith("http://judge:8000/v1: answers again, after ")


def test_the_first_failure_is_said_at_once_and_those_that_follow_with_the_silence(
    waiting: Waiting, caplog: pytest.LogCaptureFixture
) -> None:
    with waiting.asked():
        for reason in ("Connection refused", "HTTP 503:\n'away'"):
            waiting.failed(reason)
        assert caplog.messages == ["http://judge:8000/v1: Connection refused; asking again (max_attempts=5)"]
        wait_until(lambda: len(caplog.messages) == 2)
        assert caplog.messages[1].endswith("; the last try: HTTP 503: 'away'")


def test_a_server_that_answers_within_its_time_is_not_spoken_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One of two requests is slow, and the answers to the other are signs of life."""
    waiting = Waiting("http://judge:8000/v1", logger, limit="", first_seconds=1.0)
    slow = threading.Event()

    def ask_slowly() -> None:
        with waiting.asked():
            slow.wait()

    thread = threading.Thread(target=ask_slowly)
    thread.start()
    for _ in range(24):
        with waiting.asked():
            time.sleep(0.05)
    slow.set()
    thread.join()
    assert caplog.messages == []


def test_parts_of_an_answer_are_signs_of_life(caplog: pytest.LogCaptureFixture) -> None:
    waiting = Waiting("http://judge:8000/v1", logger, limit="", first_seconds=1.0)
    with waiting.asked():
        for _ in range(24):
            time.sleep(0.05)
            waiting.heard()
    assert caplog.messages == []


def test_nothing_is_watched_when_nothing_is_asked(waiting: Waiting) -> None:
    with pytest.raises(OSError, match="gone"), waiting.asked():
        raise OSError("gone")
    name = "wait for http://judge:8000/v1"
    wait_until(lambda: name not in [thread.name for thread in threading.enumerate()])
