"""How many requests are made at a time while a server limits its rate."""

import threading
import time

from cooper_rl.servers.pacing import Pace


def test_no_more_than_allowed_are_under_way() -> None:
    pace, under_way, most = Pace(3), [0], [0]
    lock = threading.Lock()

    def ask() -> None:
        with pace.turn():
            with lock:
                under_way[0] += 1
                most[0] = max(most[0], under_way[0])
            time.sleep(0.01)
            with lock:
                under_way[0] -= 1

    threads = [threading.Thread(target=ask) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most[0] == 3


def test_one_refusal_halves_and_those_that_were_on_their_way_halve_nothing() -> None:
    pace = Pace(32)
    for _ in range(20):
        pace.slow_down(0.0)
    assert pace.allowed == 16


def test_a_whole_round_of_answers_allows_one_more() -> None:
    """4 allowed: four answers add 1/4, 1/4.25, ... = .94, five make it 5."""
    pace = Pace(8)
    pace.slow_down(0.0)
    for _ in range(5):
        pace.speed_up()
    assert pace.allowed == 5
    for _ in range(100):
        pace.speed_up()
    assert pace.allowed == 8


def test_it_never_falls_below_one_and_everybody_waits_for_the_pause() -> None:
    pace = Pace(1)
    started = time.monotonic()
    pace.slow_down(0.2)
    with pace.turn():
        assert time.monotonic() - started >= 0.2
    assert pace.allowed == 1
