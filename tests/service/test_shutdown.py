"""SIGTERM: what waits is answered, what is under way is finished and saved, and a limit loses no step."""

import os
import signal
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx

from tests.service.conftest import Server
from tests.service.service_world import items, read_outcome

ONE, TWO = ({"request_id": name, "items": items(n)} for n, name in enumerate(("one", "two"), start=1))


def talk_straight(server: Server, state: Path) -> Any:
    """Both requests, answered by a server that nobody disturbs, and what its folder holds then."""
    assert server.start(state, {})
    answers = [server.post(ONE), server.post(TWO)]
    assert server.stop() == 0
    return read_outcome(state / "run", answers)


def terminate_while_one_waits(
    server: Server, state: Path, *, seconds: float, grace: float
) -> tuple[dict[str, Any], httpx.Response, int, float]:
    """SIGTERM while the first request's step takes `seconds` and the second request waits for it.

    Returns the first answer, the second one, the status of the server, and how long its end took.
    """
    assert server.start(state, {"point": "learn", "hit": 1, "seconds": seconds}, f"grace_seconds={grace}")
    first = server.post(ONE)
    with ThreadPoolExecutor(1) as thread:
        second: Future[httpx.Response] = thread.submit(server.ask, TWO)
        while server.describe()["waiting_items"] == 0:
            assert not second.done()
            time.sleep(0.02)
        began = time.monotonic()
        os.kill(server.process, signal.SIGTERM)
        answer = second.result(timeout=60)
        return first, answer, server.wait(), time.monotonic() - began


def test_what_fits_into_the_grace_period_is_answered_learned_and_saved(
    server: Server, tmp_path: Path
) -> None:
    straight = talk_straight(server, tmp_path / "straight")
    first, second, status, _ = terminate_while_one_waits(server, tmp_path / "state", seconds=2, grace=60)
    assert (second.status_code, status) == (200, 0)
    assert read_outcome(tmp_path / "state" / "run", [first, second.json()]) == straight


def test_a_step_has_what_requests_leave_of_the_grace_period(server: Server, tmp_path: Path) -> None:
    """Nothing waits, so that a step may take more than the last fifth, which is three seconds."""
    assert server.start(tmp_path / "state", {"point": "learn", "hit": 1, "seconds": 5}, "grace_seconds=15")
    server.post(ONE)
    assert server.stop() == 0
    assert server.start(tmp_path / "state", {})
    assert server.describe()["saved_step"] == 1
    assert server.stop() == 0


def test_a_step_beyond_the_grace_period_ends_with_an_error_and_is_taken_again(
    server: Server, tmp_path: Path
) -> None:
    """The request that waited is told to come again, learned nothing, and is answered by the next start."""
    straight, state = talk_straight(server, tmp_path / "straight"), tmp_path / "state"
    first, second, status, seconds = terminate_while_one_waits(server, state, seconds=300, grace=5)
    assert (second.status_code, status) == (503, 1)
    assert int(second.headers["retry-after"]) >= 1
    assert "the server is shutting down" in second.json()["detail"]
    assert 4 <= seconds < 60  # four fifths of the grace period are for requests, the rest for the step
    log = Path(f"{state}.log").read_text()
    assert "a step was still under way at the end of grace_seconds=5; the next start takes it again" in log
    assert "Traceback" not in log

    assert server.start(state, {})
    assert server.describe()["step"] == 1
    assert server.post(ONE) == first
    answers = [first, server.post(TWO)]
    assert server.stop() == 0
    assert read_outcome(state / "run", answers) == straight
