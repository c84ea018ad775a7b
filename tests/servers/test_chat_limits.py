"""Limits of a chat server and of a run: pauses, rates, budgets, and what a run is reckoned to take."""

import json
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from cooper_rl.domains.mathematics import judge_prompt
from cooper_rl.errors import ServerError
from cooper_rl.servers.answers import read_retry_after
from cooper_rl.servers.judge import ChatJudge
from cooper_rl.servers.pacing import Pace
from tests.servers.chatting import ITEM, config, honest
from tests.stand_ins.chat import RateLimit, Reply


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "-3"}, 0),
        ({"retry-after": f"Mon, 01 Jan {10**20} 00:00:00 GMT"}, None),
        ({"retry-after": f"Mon, 01 Jan 2025 00:00:00 +{10**20}"}, None),
        ({}, None),
    ],
)
def test_a_servers_pause_is_read_in_every_form(headers: dict[str, str], seconds: float | None) -> None:
    assert read_retry_after(headers) == seconds


def test_a_date_to_come_is_waited_for() -> None:
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)
    assert read_retry_after({"retry-after": later}) == pytest.approx(29.5, abs=1)


@pytest.mark.parametrize(
    ("retry_after", "count"), [({"retry-after-ms": "50"}, 120), ({"retry-after": "1"}, 40), ({}, 120)]
)
def test_a_rate_limit_is_obeyed_and_costs_no_verdict(
    serve_chat, retry_after: dict[str, str], count: int
) -> None:
    """40 a second with room for 5, asked by 32 threads at once."""
    limit = RateLimit(honest, per_second=40, burst=5, headers=retry_after)
    judge = ChatJudge(config(serve_chat(limit), max_attempts=1))
    results = judge.judge([ITEM] * count)
    assert [result.verdict for result in results] == ["correct"] * count
    assert judge.usage.num_failed == 0
    assert judge.usage.num_retries == limit.num_refused > 0


def test_a_slow_rate_outlasts_the_patience_of_no_text(serve_chat) -> None:
    """Twelve texts at five a second take over two seconds, and one second without an answer ends the run."""
    limit = RateLimit(honest, per_second=5, burst=1, headers={"retry-after-ms": "100"})
    judge = ChatJudge(config(serve_chat(limit), rate_limit_patience_seconds=1.0))
    assert {result.failure for result in judge.judge([ITEM] * 12)} == {None}


def test_a_rate_limit_without_end_is_given_up_after_the_patience(serve_chat) -> None:
    server = serve_chat(lambda number, body: (429, {}, "no"))
    judge = ChatJudge(config(server, rate_limit_patience_seconds=0.1))
    with pytest.raises(
        ServerError,
        match=r"has answered nothing for 0\.\d+ s \(HTTP 429: 'no'\), over "
        r"server\.rate_limit_patience_seconds=0\.1; start again after 20\d\d-",
    ):
        judge.judge([ITEM] * 40)


@pytest.mark.parametrize("status", [429, 503])
def test_an_hour_of_retry_after_ends_the_run_at_once_and_says_when_to_start_again(
    serve_chat, status: int
) -> None:
    """All eight that are on their way hear it; nobody asks again, and nobody waits."""
    later = datetime.now(UTC) + timedelta(hours=1)
    server = serve_chat(
        lambda number, body: (status, {"retry-after": format_datetime(later, usegmt=True)}, "closed")
    )
    started = time.monotonic()
    with pytest.raises(
        ServerError, match=r"asks for a pause of 3[56]\d\d\S* s .*start again after"
    ) as stopped:
        ChatJudge(config(server, max_concurrency=8)).judge([ITEM] * 100)
    assert any(
        f"{at:%Y-%m-%d %H:%M} UTC" in str(stopped.value) for at in (later, later - timedelta(minutes=1))
    )
    assert len(server.bodies) <= 8
    assert time.monotonic() - started < 10


def test_a_pause_of_over_a_minute_is_kept_to_the_end(serve_chat, monkeypatch) -> None:
    """Two minutes are within the patience of fifteen: nothing is sent before they are over."""
    paused: list[float] = []
    monkeypatch.setattr(Pace, "slow_down", lambda self, pause: paused.append(pause))
    server = serve_chat(
        lambda number, body: honest(number, body) if number else (429, {"retry-after": "120"}, "")
    )
    assert ChatJudge(config(server)).judge([ITEM])[0].verdict == "correct"
    assert paused == [120.0]


def test_a_run_that_is_stopped_waits_for_no_pause(serve_chat) -> None:
    server = serve_chat(
        lambda number, body: honest(0, body) if number == 0 else (429, {"retry-after": "600"}, "")
    )
    verdicts = ChatJudge(config(server, max_concurrency=2)).stream([ITEM] * 5)
    started = time.monotonic()
    next(verdicts)
    verdicts.close()
    assert time.monotonic() - started < 10


PRICES = {"price_per_million_prompt_tokens": 10_000, "price_per_million_completion_tokens": 20_000}


@pytest.mark.parametrize(
    ("key", "limit", "asked"), [("max_requests", 3, 3), ("max_total_tokens", 200, 2), ("max_cost", 2.5, 3)]
)
def test_a_budget_ends_the_run_and_names_the_key(serve_chat, key: str, limit: float, asked: int) -> None:
    """Every answer counts 107 tokens, and costs 100 x .01 + 7 x .02 = 1.14."""
    server = serve_chat(honest)
    judge = ChatJudge(config(server, max_concurrency=1, **PRICES, **{key: limit}))
    found = []
    with pytest.raises(ServerError, match=rf"the budget server\.{key}={limit} is spent .*raise it and start"):
        found.extend(judge.stream([ITEM] * 10))
    assert len(found) == len(server.bodies) == judge.usage.num_requests == asked
    assert judge.usage.cost == pytest.approx(1.14 * asked)


def test_every_try_counts_as_a_request(serve_chat) -> None:
    """Two refusals for each answer: the third text would need the seventh request."""
    server = serve_chat(lambda number, body: honest(number, body) if number % 3 == 2 else (503, {}, "busy"))
    judge = ChatJudge(config(server, max_concurrency=1, max_requests=6))
    found = []
    with pytest.raises(ServerError, match=r"server\.max_requests=6 is spent \(6 with"):
        found.extend(judge.stream([ITEM] * 4))
    assert (len(found), len(server.bodies), judge.usage.num_requests) == (2, 6, 6)


def test_requests_on_their_way_count_before_they_are_answered_and_are_kept(serve_chat) -> None:
    """1,070 tokens are ten answers; eight are asked for at a time, and none of the ten is thrown away."""

    def slow(number: int, body: dict[str, Any]) -> Reply:
        time.sleep(0.02 * (number % 4 + 1))
        return honest(number, body)

    server = serve_chat(slow)
    judge = ChatJudge(config(server, max_concurrency=8, max_total_tokens=1070))
    found = []
    with pytest.raises(ServerError, match=r"max_total_tokens=1070 is spent \(1070 with what is on its way\)"):
        found.extend(judge.stream([ITEM] * 30))
    assert len(found) == len(server.bodies) == 10


def test_an_answer_without_a_text_costs_what_the_server_says(serve_chat) -> None:
    usage = {"prompt_tokens": 400, "completion_tokens": 200}
    server = serve_chat(lambda number, body: (200, {}, json.dumps({"choices": [], "usage": usage})))
    judge = ChatJudge(config(server, max_concurrency=1, max_attempts=1, max_total_tokens=500))
    with pytest.raises(ServerError, match="max_total_tokens=500 is spent"):
        judge.judge([ITEM] * 5)
    assert len(server.bodies) == 1


@pytest.mark.parametrize(
    "usage",
    [
        [1],
        {"prompt_tokens": "many"},
        {"completion_tokens": float("nan")},
        {"prompt_tokens": 1e400},
        {"prompt_tokens": 10**400},
        3,
    ],
)
def test_a_verdict_counts_whatever_the_server_says_of_its_size(serve_chat, usage: object) -> None:
    def odd(number: int, body: dict[str, Any]) -> Reply:
        status, headers, text = honest(number, body)
        return status, headers, json.dumps(json.loads(text) | {"usage": usage})

    judge = ChatJudge(config(serve_chat(odd), **PRICES))
    assert judge.judge([ITEM])[0].verdict == "correct"
    assert judge.usage.prompt_tokens > 0
    assert judge.usage.cost > 0


def test_tokens_that_a_server_does_not_state_are_estimated(serve_chat) -> None:
    def silent(number: int, body: dict[str, Any]) -> Reply:
        return 200, {}, json.dumps({"choices": [{"message": {"content": "x" * 30}}]})

    server = serve_chat(silent)
    judge = ChatJudge(config(server))
    judge.judge([ITEM])
    num_chars = sum(len(message["content"]) for message in server.bodies[0]["messages"])
    assert judge.usage.completion_tokens == 10
    assert judge.usage.prompt_tokens == pytest.approx(num_chars / 3, abs=1)
    assert judge.usage.cost is None


def test_an_estimate_covers_instructions_and_answers_and_names_the_limits_that_it_goes_over(
    serve_chat,
) -> None:
    """Ten prompts of c characters in two messages: 10 ceil(c/3) tokens, and 10 x 50 for the answers."""
    server = serve_chat(honest)
    limits = {"max_requests": 100, "max_total_tokens": 1000, "max_cost": 15.0}
    judge = ChatJudge(config(server, expected_answer_tokens=50, **PRICES, **limits))
    prompt = judge_prompt(*ITEM, nonce=16 * "0")
    tokens = 10 * sum(-(-len(text) // 3) for text in prompt)
    cost = tokens * 0.01 + 500 * 0.02
    assert judge.announce([ITEM] * 10) == (
        f"about 10 requests, {tokens} prompt tokens with the instructions, 500 completion tokens, a cost of "
        f"{cost:.2f}; server.max_total_tokens=1000 ends it after about {1000 / (tokens + 500):.0%} of them; "
        f"server.max_cost=15 ends it after about {15 / cost:.0%} of them"
    )
    assert server.bodies == []
    assert judge.announce([ITEM], is_most=True).startswith("at most 1 requests, ")
