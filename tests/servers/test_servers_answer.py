"""One small request to each chat server that a configuration names, against servers on real sockets."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cooper_rl.config.load import load
from cooper_rl.errors import ConfigError, ServerError
from cooper_rl.servers import open as servers
from cooper_rl.servers.open import servers_of
from cooper_rl.stages import check_settings
from tests.servers.chatting import completion
from tests.stand_ins.chat import Reply, ScriptedServer

Script = Callable[[int, dict[str, Any]], Reply]
SECTIONS = {
    "labeling.judge": ["labeling.judge.tiny_error_rate=null"],
    "evaluation.judge": ["evaluation.judge.tiny_error_rate=null"],
    "cooper.judge": [
        "cooper.judge.tiny_error_rate=null",
        "cooper.reward.kind=judge",
        "cooper.reward.update_verify_rm=false",
    ],
    "cooper.pairs.assistant": ["cooper.pairs.assistant.tiny=false"],
}
"""Section -> what a server in it needs beside itself."""


def says_yes(number: int, body: dict[str, Any]) -> Reply:
    return completion("yes")


def naming(section: str, url: str, *, model: str = "model-1") -> list[str]:
    return [f"{section}.server.base_url={url}", f"{section}.server.model={model}"]


def check(folder: Path, *overrides: str) -> list[str]:
    return check_settings.run(load("laptop", overrides), report=folder / "report.json").servers


def dead() -> str:
    """Nobody listens there any more."""
    server = ScriptedServer(says_yes)
    server.close()
    return server.url


def test_the_laptops_own_judge_and_assistant_are_nobody_to_ask() -> None:
    assert servers_of(load("laptop")) == []


@pytest.mark.parametrize("section", SECTIONS)
def test_every_server_of_a_run_is_asked_for_one_word(
    section: str, serve_chat: Callable[[Script], ScriptedServer], tmp_path: Path
) -> None:
    server = serve_chat(says_yes)
    budget = [f"{section}.server.max_requests=1", f"{section}.server.max_tokens=8"]
    assert check(tmp_path, *SECTIONS[section], *naming(section, server.url), *budget) == [section]
    (body,) = server.bodies
    assert (body["model"], body["max_tokens"]) == ("model-1", 8)


def test_further_judges_and_the_third_vote_are_asked_and_a_server_that_is_named_twice_is_asked_once(
    serve_chat: Callable[[Script], ScriptedServer], tmp_path: Path
) -> None:
    server = serve_chat(says_yes)
    of = f'{{ server = {{ base_url = "{server.url}", model = "%s" }} }}'
    overrides = [
        *SECTIONS["labeling.judge"], *naming("labeling.judge", server.url),
        *SECTIONS["evaluation.judge"], *naming("evaluation.judge", server.url),
        f"labeling.other_judges=[{of % 'model-2'}]",
        f"labeling.third_vote={{ judge = {of % 'model-3'} }}",
    ]  # fmt: skip
    assert check(tmp_path, *overrides) == [
        "labeling.judge", "evaluation.judge", "labeling.other_judges[0]", "labeling.third_vote.judge",
    ]  # fmt: skip
    assert sorted(body["model"] for body in server.bodies) == ["model-1", "model-2", "model-3"]


def test_a_server_that_no_part_of_the_run_asks_is_not_tried(tmp_path: Path) -> None:
    frozen = "cooper.reward.update_verify_rm=false"
    assistant = [*SECTIONS["cooper.pairs.assistant"], *naming("cooper.pairs.assistant", dead())]
    assert check(tmp_path, frozen, *assistant) == []


@pytest.mark.parametrize(
    ("section", "remedy"),
    [
        ("labeling.judge", "labeling.judge=null"),
        ("cooper.pairs.assistant", "cooper.reward.update_verify_rm=false"),
    ],
)
def test_a_server_that_is_down_ends_the_first_task_within_seconds(
    section: str, remedy: str, tmp_path: Path
) -> None:
    url = dead().replace("http://", "http://me:pa55word@")
    began = time.monotonic()
    with pytest.raises(ServerError) as raised:
        check(tmp_path, *SECTIONS[section], *naming(section, url))
    assert time.monotonic() - began < 10
    said = str(raised.value)
    assert said.startswith(f"{section}: http://***@127.0.0.1:")
    assert "does not answer as model 'model-1' (ConnectError: " in said
    assert f"correct {section}.server.base_url" in said
    assert said.endswith(f"leaves it out: {remedy}")
    assert "pa55word" not in said


def test_a_server_that_is_still_starting_is_asked_once_more(
    serve_chat: Callable[[Script], ScriptedServer], tmp_path: Path
) -> None:
    server = serve_chat(lambda number, body: (503, {}, "loading") if number == 0 else completion("yes"))
    named = [*SECTIONS["labeling.judge"], *naming("labeling.judge", server.url)]
    assert check(tmp_path, *named) == ["labeling.judge"]
    assert len(server.bodies) == 2


@pytest.mark.parametrize(
    ("reply", "tries", "reason"),
    [
        ((503, {}, "loading"), 2, "HTTP 503: 'loading'"),
        ((400, {}, "no such option"), 2, "HTTP 400: 'no such option'"),
        ((404, {}, "no such model"), 1, "refuses model 'model-1' with HTTP 404: 'no such model'"),
        ((200, {}, "<html>"), 2, "not a chat completion: '<html>'"),
    ],
    ids=["unavailable", "bad request", "unknown model", "no chat server"],
)
def test_what_is_no_answer_is_named(
    serve_chat: Callable[[Script], ScriptedServer], tmp_path: Path, reply: Reply, tries: int, reason: str
) -> None:
    server = serve_chat(lambda number, body: reply)
    with pytest.raises(ServerError) as raised:
        check(tmp_path, *SECTIONS["labeling.judge"], *naming("labeling.judge", server.url))
    assert reason in str(raised.value)
    assert len(server.bodies) == tries


def test_a_server_that_says_nothing_is_given_up(
    serve_chat: Callable[[Script], ScriptedServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time limit is a fifth of a second here, and that of the configuration is two minutes."""
    monkeypatch.setattr(servers, "TIMEOUT_SECONDS", 0.2)

    def hang(number: int, body: dict[str, Any]) -> Reply:
        time.sleep(2)
        return completion("yes")

    server = serve_chat(hang)
    with pytest.raises(ServerError, match="ReadTimeout"):
        check(tmp_path, *SECTIONS["labeling.judge"], *naming("labeling.judge", server.url))


def test_a_limited_rate_is_an_answer(serve_chat: Callable[[Script], ScriptedServer], tmp_path: Path) -> None:
    server = serve_chat(lambda number, body: (429, {"retry-after": "3600"}, "slow down"))
    named = [*SECTIONS["labeling.judge"], *naming("labeling.judge", server.url)]
    assert check(tmp_path, *named) == ["labeling.judge"]


def test_a_key_that_this_task_does_not_get_is_no_failure_and_a_wrong_one_is(
    serve_chat: Callable[[Script], ScriptedServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve_chat(lambda number, body: (401, {}, "who are you"))
    named = [*SECTIONS["labeling.judge"], *naming("labeling.judge", server.url)]
    named += ["labeling.judge.server.api_key_env=JUDGE_KEY"]
    monkeypatch.delenv("JUDGE_KEY", raising=False)
    assert check(tmp_path, *named) == ["labeling.judge"]
    assert "authorization" not in server.headers[0]
    monkeypatch.setenv("JUDGE_KEY", "wrong")
    with pytest.raises(ServerError, match=r"check base_url, model and api_key_env \(now 'JUDGE_KEY'\)"):
        check(tmp_path, *named)
    assert server.headers[1]["authorization"] == "Bearer wrong"
    monkeypatch.setenv("JUDGE_KEY", "schlüssel")
    with pytest.raises(ConfigError, match=r"^labeling\.judge\.server\.api_key_env='JUDGE_KEY': that env"):
        check(tmp_path, *named)


@pytest.mark.parametrize("host", ["host:port", "[::1", "xn--", "a..b", "a" * 64, ""])
def test_an_address_that_cannot_be_asked_is_named_without_its_password(tmp_path: Path, host: str) -> None:
    url = f"http://me:pa55word@{host}/v1"
    with pytest.raises(ConfigError, match=r"^labeling\.judge\.server\.base_url=.*: is no address") as raised:
        check(tmp_path, *SECTIONS["labeling.judge"], *naming("labeling.judge", url))
    assert "pa55word" not in str(raised.value)
