"""Second requests for late answers, against a scripted chat server on a real socket."""

import json
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest

from cooper_rl.config.data import ServerConfig
from cooper_rl.method.prompts import ChatPrompt
from cooper_rl.negatives.pairs import RewriteItem
from cooper_rl.servers.assistant import ChatAssistant
from cooper_rl.servers.budget import Ledger
from cooper_rl.servers.chat import ChatClient
from cooper_rl.servers.hedging import MIN_TIMED, Hedger
from tests.stand_ins.chat import Reply, ScriptedServer

Script = Callable[[int, dict[str, Any]], Reply]


def config(server: ScriptedServer, **options: Any) -> ServerConfig:
    values = {"hedge_after": 2.0, "max_concurrency": 2, "backoff_seconds": 0.001} | options
    return ServerConfig(base_url=server.url, model="m", **values)


def completion(text: str) -> Reply:
    return 200, {}, json.dumps({"choices": [{"message": {"content": text}}]})


def ask(client: ChatClient, *seeds: int) -> list[str]:
    return [client.ask(ChatPrompt("system", "user"), seed=seed) for seed in seeds]


def knows_the_median(client: ChatClient) -> None:
    """Ask until the client knows how long an answer takes."""
    ask(client, *range(100, 100 + MIN_TIMED))


def is_first(server: ScriptedServer, body: dict[str, Any]) -> bool:
    """Whether the server saw this request for the first time."""
    return sum(other["seed"] == body["seed"] for other in server.bodies) == 1


def test_a_late_answer_is_asked_for_again_and_the_first_one_counts(serve_chat) -> None:
    """The first request would never be answered; its connection is closed when the second is."""
    is_over = threading.Event()

    def script(number: int, body: dict[str, Any]) -> Reply:
        if body["seed"] == 1 and is_first(server, body):
            assert is_over.wait(timeout=60)
            return completion("first")
        return completion("second")

    server = serve_chat(script)
    client = ChatClient(config(server, timeout_seconds=60))
    knows_the_median(client)
    started = time.monotonic()
    assert ask(client, 1) == ["second"]
    assert time.monotonic() - started < 20
    is_over.set()
    asked = [body for body in server.bodies if body["seed"] == 1]
    assert len(asked) == 2
    assert asked[0] == asked[1]
    usage = client.usage
    assert (usage.num_hedged, usage.num_requests, usage.num_retries) == (1, MIN_TIMED + 2, 0)


def test_the_losers_connection_is_closed_and_no_thread_is_left() -> None:
    """A bare socket that answers all but the sixth connection, which hears the end of it."""
    text = completion("text")[2].encode()
    answer = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%s" % (len(text), text)
    with socket.create_server(("127.0.0.1", 0)) as listening, ExitStack() as open_connections:

        def answer_all_but_one() -> socket.socket:
            for number in range(MIN_TIMED + 2):
                connection = listening.accept()[0]
                connection.recv(65536)
                if number == MIN_TIMED:
                    late = open_connections.enter_context(connection)
                    continue
                connection.sendall(answer)
                connection.close()
            return late

        url = f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
        client = ChatClient(ServerConfig(base_url=url, model="m", hedge_after=2.0, max_concurrency=2))
        with ThreadPoolExecutor(1) as threads:
            serving = threads.submit(answer_all_but_one)
            knows_the_median(client)
            before = threading.active_count()
            assert ask(client, 1) == ["text"]
            assert threading.active_count() <= before
            late = serving.result()
        late.settimeout(20)
        while late.recv(65536):  # what is left of the request, then the end; a time-out where none comes
            pass


def test_nothing_is_asked_twice_without_the_option_or_before_the_median_is_known(serve_chat) -> None:
    def script(number: int, body: dict[str, Any]) -> Reply:
        time.sleep(0.3 if body["seed"] == 1 else 0)
        return completion("text")

    for options in ({"hedge_after": None}, {}):
        server = serve_chat(script)
        client = ChatClient(config(server, **options))
        ask(client, *range(2, MIN_TIMED + 1), 1)
        assert len(server.bodies) == MIN_TIMED
        assert client.usage.num_hedged == 0


def test_an_error_says_nothing_of_how_long_an_answer_takes(serve_chat) -> None:
    def script(number: int, body: dict[str, Any]) -> Reply:
        if body["seed"] < MIN_TIMED:
            return 500, {}, "starting"
        time.sleep(0.3)
        return completion("text")

    server = serve_chat(script)
    ledger = Ledger(config(server))
    hedger = Hedger(config(server), {}, ledger)
    statuses = [hedger.post(server.url, {"seed": seed}).answer.status_code for seed in range(MIN_TIMED + 1)]
    assert statuses == [500] * MIN_TIMED + [200]
    assert ledger.usage.num_hedged == 0


def test_second_requests_count_and_a_spent_budget_leaves_the_first_alone(serve_chat) -> None:
    """Both answers are taken to cost what the winner's does. With a spent budget there is no second."""

    def script(number: int, body: dict[str, Any]) -> Reply:
        time.sleep(0.5 if body["seed"] == 1 and is_first(server, body) else 0)
        usage = {"prompt_tokens": 10, "completion_tokens": 1}
        return 200, {}, json.dumps({"choices": [{"message": {"content": "t"}}], "usage": usage})

    for limit, num_hedged in ((MIN_TIMED + 2, 1), (MIN_TIMED + 1, 0)):
        server = serve_chat(script)
        client = ChatClient(config(server, max_requests=limit))
        knows_the_median(client)
        assert ask(client, 1) == ["t"]
        assert (client.usage.num_requests, client.usage.num_hedged) == (limit, num_hedged)
        assert client.usage.prompt_tokens == 10 * limit


def test_second_requests_take_only_room_that_is_left(serve_chat) -> None:
    """Two may be open: while two first requests wait there is no second one, however late they are."""

    def script(number: int, body: dict[str, Any]) -> Reply:
        time.sleep(0.5 if body["seed"] < 3 else 0)
        return completion("text")

    server = serve_chat(script)
    client = ChatClient(config(server))
    knows_the_median(client)
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda seed: ask(client, seed), (1, 2)))
    assert server.max_open == 2


@pytest.mark.parametrize("failure", [(500, {}, "broken"), (0, {}, "")], ids=["500", "closed"])
def test_a_second_request_that_fails_leaves_the_first(serve_chat, failure: Reply) -> None:
    def script(number: int, body: dict[str, Any]) -> Reply:
        if body["seed"] == 1 and not is_first(server, body):
            return failure
        time.sleep(0.6 if body["seed"] == 1 else 0)
        return completion("first")

    server = serve_chat(script)
    client = ChatClient(config(server))
    knows_the_median(client)
    assert ask(client, 1) == ["first"]
    assert (client.usage.num_hedged, client.usage.num_retries) == (1, 0)


def test_where_both_fail_the_request_is_tried_again(serve_chat) -> None:
    def script(number: int, body: dict[str, Any]) -> Reply:
        times = sum(other["seed"] == 1 for other in server.bodies)
        if body["seed"] == 1 and times <= 2:
            time.sleep(0.4 if times == 1 else 0)
            return 503, {}, "busy"
        return completion("third")

    server = serve_chat(script)
    client = ChatClient(config(server))
    knows_the_median(client)
    assert ask(client, 1) == ["third"]
    assert client.usage.num_retries == 1


def test_the_median_is_of_first_requests_and_a_loser_counts_as_long_as_it_ran(serve_chat) -> None:
    """Five answers at once, then a late one: six are timed, the last with at least the limit."""

    def script(number: int, body: dict[str, Any]) -> Reply:
        time.sleep(0.5 if body["seed"] == 1 and is_first(server, body) else 0.05)
        return completion("text")

    server = serve_chat(script)
    ledger = Ledger(config(server))
    hedger = Hedger(config(server), {}, ledger)
    for seed in (2, 3, 4, 5, 6, 1):
        assert hedger.post(f"{server.url}/chat/completions", {"seed": seed}).answer.status_code == 200
    seconds = list(hedger._seconds)
    assert ledger.usage.num_hedged == 1
    assert len(seconds) == 6
    assert seconds[-1] > 0.1


def test_the_assistant_counts_second_requests_of_a_step(serve_chat) -> None:
    def script(number: int, body: dict[str, Any]) -> Reply:
        time.sleep(0.5 if number == MIN_TIMED else 0)
        return completion("")

    assistant = ChatAssistant(config(serve_chat(script)))
    items = [RewriteItem(f"p{place}", "q", "2", "#### 2") for place in range(MIN_TIMED + 1)]
    assistant.begin()
    assistant.rewrite(items, seed=0)
    assert assistant.num_hedged == 1
    assistant.begin()
    assert assistant.num_hedged == 0
