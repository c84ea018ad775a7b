"""What Prometheus reads of the server of rewards."""

import asyncio
import re
from typing import Any

import httpx
import pytest

from tests.service.service_world import HELD_OUT, falling, items, post


def test_numbers_of_the_runs(visit) -> None:
    async def talk(client: httpx.AsyncClient) -> str:
        await post(client, "one", items(1))
        await post(client, "one", items(1))
        while 'cooper_reward_step{run="a"} 1.0' not in (await client.get("/metrics")).text:
            await asyncio.sleep(0.05)
        return (await client.get("/metrics")).text

    metrics = visit(talk)
    for line in (
        'cooper_reward_requests_total{status="200"} 2.0',
        "cooper_reward_items_total 8.0",
        'cooper_reward_repeated_total{run="a"} 1.0',
        'cooper_reward_learn_seconds_count{run="a"} 1.0',
        "cooper_reward_waiting_items 0.0",
        'cooper_reward_saved_step{run="a"} 0.0',  # no checkpoint yet
    ):
        assert line in metrics


def served(text: str, name: str) -> float | None:
    """The number of the run `a` behind a name; None where the endpoint gives none."""
    found = re.search(rf'^cooper_reward_{name}{{run="a"}} (\S+)$', text, flags=re.MULTILINE)
    return float(found[1]) if found else None


SHOWN = {
    "verify_rm_score": "rollout/verify_rm_reward",
    "rule_accuracy_ratio": "rollout/rule_accuracy",
    "worst_canary_high_ratio": "gate/worst_canary_high",
    "step": "step",
}
"""Number of /metrics -> metric of the last step."""


def test_the_last_steps_numbers_and_the_runs_counts_are_served_also_after_a_restart(
    visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No number of the run is lost: Prometheus would see a count that falls as one that begins again.

    The metrics of the newest steps are at hand alone.
    """
    for place in ("reward_run", "reward_state"):
        monkeypatch.setattr(f"cooper_rl.api.{place}.NUM_METRICS", 1)

    async def learn(client: httpx.AsyncClient) -> None:
        for n in range(3):
            assert (await post(client, f"r{n}", items(n))).status_code == 200

    async def look(client: httpx.AsyncClient) -> tuple[str, dict[str, Any]]:
        return (await client.get("/metrics")).text, (await client.get("/v1/runs")).json()[0]["metrics"]

    settings = [
        "cooper.pairs.max_staleness=1",
        "cooper.gate={ max_attack_rise = 1, num_canary_problems = 2 }",
    ]
    visit(learn, *settings, held_out=HELD_OUT)
    text, last = visit(look, *settings, held_out=HELD_OUT)
    assert last["step"] == 3
    assert {name: served(text, name) for name in SHOWN} == {name: last[key] for name, key in SHOWN.items()}
    assert 0 < last["gate/worst_canary_high"] <= 1
    # The pairs of the last step are yet to come, as its answer said.
    assert served(text, "staleness_steps") == 1
    assert served(text, "pairs_total") == 2 * last["pairs/count"] > 0
    assert served(text, "alarms_total") == 0
    assert (served(text, "stopped"), served(text, "repeated_total")) == (0, 0)


def test_without_held_out_examples_no_canary_is_shown(visit) -> None:
    async def talk(client: httpx.AsyncClient) -> str:
        await post(client, "one", items(1))
        await post(client, "two", items(2))
        return (await client.get("/metrics")).text

    text = visit(talk)
    assert served(text, "rule_accuracy_ratio") == 0.5
    assert served(text, "worst_canary_high_ratio") is None


def test_the_alarm_that_stops_a_run_is_counted_also_after_a_restart(visit) -> None:
    monitor = "cooper.monitor={ window = 2, max_gap_rise = 0.01, num_anchors = 0, action = 'stop' }"

    async def talk(client: httpx.AsyncClient) -> str:
        for n in range(12):
            await post(client, f"r{n}", falling(n))
        return (await client.get("/metrics")).text

    async def again(client: httpx.AsyncClient) -> str:
        return (await client.get("/metrics")).text

    for text in (visit(talk, monitor), visit(again, monitor)):
        assert (served(text, "alarms_total"), served(text, "stopped")) == (1, 1)
