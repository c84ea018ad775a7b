"""The scoring server: what it answers, what it refuses, and that nothing makes it fail."""

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from pydantic import ValidationError

from cooper_rl.__main__ import main
from cooper_rl.config.serve import ServeConfig
from cooper_rl.errors import ServerError
from cooper_rl.models.verify_rm import VerifyItem
from cooper_rl.servers.batcher import ScoreBatcher, Scored
from cooper_rl.servers.pages import RequestPart
from cooper_rl.servers.verify_rm_http import make_app

ITEM = {"question": "Tom has 7 apples.", "reference_answer": "7", "completion": "The answer is 7."}
LIMITS = ServeConfig(max_items_per_request=4, max_chars_per_field=50, max_body_bytes=2000)


def visit(
    verify_rm, talk: Callable[[httpx.AsyncClient], Awaitable[Any]], config: ServeConfig = LIMITS
) -> Any:
    """Run `talk` against the app, from start to shutdown."""

    async def run() -> Any:
        app = make_app(verify_rm, config, name="rm")
        async with app.router.lifespan_context(app):
            transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
                return await talk(client)

    return asyncio.run(run())


def test_scores_are_those_of_the_library(make_verify_rm) -> None:
    other = {**ITEM, "completion": "9"}
    answer = visit(make_verify_rm(0), lambda c: c.post("/v1/score", json={"items": [ITEM, other]}))
    expected = make_verify_rm(0).score([VerifyItem(**ITEM), VerifyItem(**other)])
    assert answer.status_code == 200
    assert answer.json() == {"scores": pytest.approx(expected, abs=1e-6), "model": "rm"}


def test_requests_that_wait_together_are_scored_together(make_verify_rm) -> None:
    async def talk(client: httpx.AsyncClient) -> tuple[list[httpx.Response], str]:
        answers = await asyncio.gather(*(client.post("/v1/score", json={"items": [ITEM]}) for _ in range(10)))
        return answers, (await client.get("/metrics")).text

    answers, metrics = visit(make_verify_rm(0), talk, ServeConfig(max_wait_seconds=0.2))
    assert [answer.status_code for answer in answers] == [200] * 10
    assert "verify_rm_batch_items_count 2.0" in metrics  # the first score of all, and the ten
    assert 'verify_rm_requests_total{status="200"} 10.0' in metrics
    assert "verify_rm_items_total 10.0" in metrics


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"items": []}, 422),
        ({"items": [ITEM] * 5}, 422),
        ({"items": [{**ITEM, "completion": "x" * 51}]}, 422),
        ({"items": [{**ITEM, "more": 1}]}, 422),
        ({"items": [{**ITEM, "completion": 7}]}, 422),
        ({"items": [{"question": "q"}]}, 422),
        ({"items": [{**ITEM, "question": "x" * 3000}]}, 413),
    ],
)
def test_what_does_not_fit_is_refused(make_verify_rm, body: Any, status: int) -> None:
    assert visit(make_verify_rm(0), lambda c: c.post("/v1/score", json=body)).status_code == status


def test_of_unknown_keys_the_first_alone_are_faults(make_verify_rm) -> None:
    """A fault takes a kilobyte, and a body of 16 MB has room for a million keys."""
    unknown = {str(number): 0 for number in range(100)}
    answer = visit(make_verify_rm(0), lambda c: c.post("/v1/score", json={"items": [{**unknown, **ITEM}]}))
    assert answer.status_code == 422
    assert [fault["loc"][-1] for fault in answer.json()["detail"]] == [str(number) for number in range(10)]

    class Part(RequestPart):
        known: int

    with pytest.raises(ValidationError) as refused:
        Part.model_validate({**dict.fromkeys(map(str, range(100_000))), "known": 1})
    assert refused.value.error_count() == 10


def test_a_body_of_unknown_length_is_limited_too(make_verify_rm) -> None:
    async def endless():
        for _ in range(100):
            yield b" " * 1000

    answer = visit(make_verify_rm(0), lambda c: c.post("/v1/score", content=endless()))
    assert answer.status_code == 413
    assert answer.json()["detail"] == "the body is over 2000 bytes; send fewer items"


def test_health_readiness_and_the_document(make_verify_rm) -> None:
    async def talk(client: httpx.AsyncClient) -> list[httpx.Response]:
        return [await client.get(path) for path in ("/healthz", "/readyz", "/openapi.json")]

    health, ready, document = visit(make_verify_rm(0), talk)
    assert (health.text, ready.text) == ("ok", "ready")
    responses = document.json()["paths"]["/v1/score"]["post"]["responses"]
    assert set(responses) == {"200", "400", "401", "413", "422", "429", "500", "503"}


def test_it_is_not_ready_before_its_start(make_verify_rm) -> None:
    async def run() -> httpx.Response:
        transport = httpx.ASGITransport(app=make_app(make_verify_rm(0), LIMITS, name="rm"))
        async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
            return await client.get("/readyz")

    assert asyncio.run(run()).status_code == 503


def test_damaged_weights_never_get_ready(make_verify_rm) -> None:
    verify_rm = make_verify_rm(0)
    with torch.no_grad():
        verify_rm.model.score.weight.fill_(float("nan"))
    with pytest.raises(Exception, match="score is NaN for the question '1\\+1\\?'"):
        visit(verify_rm, lambda c: c.get("/readyz"))


def test_damage_while_serving_is_answered_500(make_verify_rm) -> None:
    verify_rm = make_verify_rm(0)

    async def talk(client: httpx.AsyncClient) -> httpx.Response:
        with torch.no_grad():
            verify_rm.model.score.weight.fill_(float("nan"))
        return await client.post("/v1/score", json={"items": [ITEM]})

    answer = visit(verify_rm, talk)
    assert answer.status_code == 500
    assert "VerifyRM's score is NaN" in answer.json()["detail"]


def test_too_many_waiting_items_are_answered_429(make_verify_rm) -> None:
    config = ServeConfig(max_waiting_items=3, max_items_per_request=3, max_wait_seconds=0.5)

    async def talk(client: httpx.AsyncClient) -> list[httpx.Response]:
        posts = [client.post("/v1/score", json={"items": [ITEM] * 2}) for _ in range(2)]
        return await asyncio.gather(*posts)

    # Threads count the tokens: either request may be the first to wait.
    scored, refused = sorted(visit(make_verify_rm(0), talk, config), key=lambda answer: answer.status_code)
    assert (scored.status_code, refused.status_code) == (200, 429)
    assert refused.headers["retry-after"] == "1"
    assert "2 items wait and at most 3 may; try again in 1 s" in refused.json()["detail"]


def test_what_waits_at_the_end_is_still_scored_and_what_comes_later_refused() -> None:
    async def run() -> Scored:
        batcher = ScoreBatcher(
            lambda items: [0.5] * len(items), max_items=8, max_tokens=100, max_wait_seconds=0.5, max_waiting=8
        )
        await batcher.start()
        waiting = asyncio.create_task(batcher.submit([VerifyItem("q", "r", "c")], [1]))
        await asyncio.sleep(0)
        closing = asyncio.create_task(batcher.close())
        await asyncio.sleep(0)
        with pytest.raises(ServerError, match="the server is shutting down; send the request to another"):
            await batcher.submit([VerifyItem("q", "r", "c")], [1])
        await closing
        return await waiting

    assert asyncio.run(run()).scores == [0.5]


def test_requests_in_flight_are_answered_after_sigterm_and_the_command_exits_with_0(
    serve, make_verify_rm
) -> None:
    """The first of a batch waits two seconds for company, so the signal finds all three waiting."""
    url, process = serve("max_wait_seconds=2")
    with ThreadPoolExecutor(3) as threads:
        answers = [
            threads.submit(httpx.post, f"{url}/v1/score", json={"items": [ITEM]}, timeout=60)
            for _ in range(3)
        ]
        wait_for(lambda: "verify_rm_waiting_items 3.0" in httpx.get(f"{url}/metrics", timeout=20).text)
        process.send_signal(signal.SIGTERM)
        assert [answer.result().status_code for answer in answers] == [200] * 3
    expected = make_verify_rm(0).score([VerifyItem(**ITEM)])
    assert answers[0].result().json()["scores"] == pytest.approx(expected, abs=1e-6)
    assert process.wait(timeout=60) == 0
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/healthz")


def test_an_idle_server_exits_with_0_after_sigterm(serve) -> None:
    _, process = serve()
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 0


def wait_for(is_so: Callable[[], bool]) -> None:
    for _ in range(300):
        if is_so():
            return
        time.sleep(0.02)
    raise AssertionError("it did not happen")


def test_a_wrong_setting_and_a_missing_model_are_named(tmp_path: Path, capsys) -> None:
    assert main(["serve-verify-rm", "--verify-rm", str(tmp_path), "--set", "prot=1"]) == 2
    assert "prot: unknown key" in capsys.readouterr().err
    assert main(["serve-verify-rm", "--verify-rm", str(tmp_path / "none")]) == 2
    assert "no config.json there" in capsys.readouterr().err
