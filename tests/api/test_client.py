"""`RewardClient`: what can never succeed is refused at once, and no message holds the token."""

import copy
import json
import logging
import math
import os
import pickle
from base64 import b64encode
from collections.abc import Iterator
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy
import pytest

from cooper_rl import RewardClient
from cooper_rl.api.rows import read_rows
from cooper_rl.errors import ConfigError, DataError, ServerError
from tests.stand_ins.serving import serving

TOKEN = "sesame-of-24-characters"


class Rewarding(BaseHTTPRequestHandler):
    """Gives who has the token, or the password, the number in each completion."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        rewards = [json.loads(item["completion"]) for item in asked["items"]]
        request_id = "another" if rewards == [-1] else asked["request_id"]
        content = json.dumps({"rewards": rewards, "request_id": request_id}).encode()
        known = {f"Bearer {TOKEN}", f"Basic {b64encode(b'me:sesame').decode()}"}
        status = 200 if self.headers["authorization"] in known else 401
        self.send_response(status if self.path == "/v1/runs/default/rewards" else 404)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None: ...


def test_an_address_without_its_scheme_is_refused_at_once() -> None:
    with pytest.raises(
        ConfigError, match="url='rewards:8080': cannot be used; write it with http:// or https://"
    ):
        RewardClient("rewards:8080")


@pytest.mark.parametrize(
    "url",
    [
        "http://[::1",
        "http://rewards\n:80",
        "http://",
        "http://rewards/?sig=abc",
        "http://a..b",
        "http://xn--",
    ],
)
def test_an_address_that_cannot_be_asked_is_refused_at_once(url: str) -> None:
    with pytest.raises(
        ConfigError, match="cannot be used; write it with http:// or https:// and without a query"
    ):
        RewardClient(url)


def test_a_password_in_the_address_is_sent_and_never_logged(caplog: pytest.LogCaptureFixture) -> None:
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Rewarding)) as url, caplog.at_level(logging.DEBUG):
        address = url.replace("://", "://me:sesame@")
        client = RewardClient(address, retry_seconds=0)
        assert client(["2"], questions=["1+1?"], reference_answers=["2"]) == [2]
        client.close()
        with pytest.raises(ConfigError, match="has a user and password; leave them out, or the token"):
            RewardClient(address, token=TOKEN)
    assert "sesame" not in caplog.text.replace(TOKEN, "")


@pytest.fixture
def client() -> Iterator[RewardClient]:
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Rewarding)) as url:
        found = RewardClient(url, token=TOKEN, retry_seconds=0)
        yield found
        found.close()


def test_prompts_and_completions_may_be_chat_messages(client: RewardClient) -> None:
    turns = [{"role": "user", "content": "1+1?"}]
    blocks = [{"role": "assistant", "content": [{"type": "text", "text": "7"}]}]
    assert client([blocks], prompts=[turns], reference_answers=["2"]) == [7]


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("reference_answers", [None], "reference_answers: value 0 is null, not text or a number"),
        ("reference_answers", [math.nan], "reference_answers: value 0 is nan, not a finite number"),
        ("reference_answers", [["2", "3"]], "value 0 has 2 answers, not one; give the final answer alone"),
        ("completions", [2], r"completions: value 0 is 2 \(int\); give a text, or chat messages"),
        ("questions", "q", "questions: is 'q' .str.; give a list, one value per completion"),
        ("questions", [], "questions: 0 values for 1 completions"),
        ("questions", 5, "questions: is '5' .int.; give a list"),
    ],
)
def test_what_is_no_column_of_texts_is_named(
    client: RewardClient, column: str, value: object, message: str
) -> None:
    columns: dict[str, Any] = {"questions": ["1+1?"], "reference_answers": ["2"], "completions": ["2"]}
    columns[column] = value
    with pytest.raises(DataError, match=message):
        client(**columns)


def test_reference_answers_may_be_numbers_as_in_files_of_problems() -> None:
    answers = [145.0, 2, ["0.5"], Decimal("1e-3"), *numpy.array([7, 8]), *numpy.array([0.25, 9.0])]
    rows = read_rows(
        ["#### 1"] * 8, prompts=["1+1?"] * 8, questions=None, reference_answers=answers, group_ids=None
    )
    found = [row and row.reference_answer for row in rows]
    assert found == ["145", "2", "0.5", "0.001", "7", "8", "0.25", "9"]


@pytest.mark.parametrize(("path", "run"), [("/v1", "default"), ("", "my/run")])
def test_an_address_that_the_server_does_not_know_is_told(path: str, run: str) -> None:
    said = (
        r"refused the request with HTTP 404.*; give the address of a server of rewards without /v1 \(COOPER"
    )
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Rewarding)) as url:
        client = RewardClient(url + path, run=run, token=TOKEN, retry_seconds=0)
        with pytest.raises(ServerError, match=said):
            client(["2"], questions=["1+1?"], reference_answers=["2"])
        client.close()


@pytest.mark.parametrize(
    ("completion", "message"),
    [
        ("NaN", "answers as no server of rewards does"),
        ("1" + "0" * 400, "answers as no server of rewards does"),
        ("true", "answers as no server of rewards does"),
        ("-1", "gave the answer to another request"),
    ],
)
def test_an_answer_that_is_none_to_this_request_is_refused(
    client: RewardClient, completion: str, message: str
) -> None:
    with pytest.raises(ServerError, match=message):
        client([completion], questions=["1+1?"], reference_answers=["2"])


def ask(client: RewardClient, number: int) -> bool:
    """Whether all rewards are those that this process asked for."""
    asked = [number * 1000 + place for place in range(40)]
    return asked == [client([str(each)], questions=["1+1?"], reference_answers=["2"])[0] for each in asked]


def test_a_copy_of_a_client_asks_on_a_connection_of_its_own(client: RewardClient) -> None:
    """As for a worker that a trainer starts."""
    copies: list[RewardClient] = [pickle.loads(pickle.dumps(client)), copy.deepcopy(client)]
    client.close()
    assert [ask(each, number) for number, each in enumerate(copies)] == [True, True]
    for each in copies:
        each.close()


def test_forked_processes_get_their_own_rewards(client: RewardClient) -> None:
    """The connection that the client has open is the parent's."""
    assert ask(client, 0)
    children: list[int] = []
    for number in (1, 2, 3):
        if (child := os.fork()) == 0:
            os._exit(0 if ask(client, number) else 1)
        children.append(child)
    assert ask(client, 4)
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]


def test_a_pause_in_the_past_is_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    class Away(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(503)
            self.send_header("retry-after", ["-5", "0", "Mon, 01 Jan 2024 00:00:00 GMT", "2"][len(slept)])
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None: ...

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Away)) as url:
        client = RewardClient(url, retry_seconds=1.5)
        monkeypatch.setattr("cooper_rl.api.client.time.sleep", slept.append)
        with pytest.raises(ServerError, match=r"no answer in retry_seconds=1.5"):
            client(["2"], questions=["1+1?"], reference_answers=["2"])
        client.close()
    assert slept == [1.0, 1.0, 1.0]


def test_a_token_as_its_file_has_it_is_sent_without_the_line_break() -> None:
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Rewarding)) as url:
        client = RewardClient(url, token=f"{TOKEN}\n", retry_seconds=0)
        assert client(["2"], questions=["1+1?"], reference_answers=["2"]) == [2]
        client.close()


@pytest.mark.parametrize("token", [f"{TOKEN}\nother", f"{TOKEN}\0", f"{TOKEN}ü", " \n"])
def test_a_token_that_no_header_can_carry_is_refused_and_not_shown(
    token: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG), pytest.raises(ConfigError, match="give the token alone") as found:
        RewardClient("http://127.0.0.1:9", token=token)
    assert "sesame" not in str(found.value) + caplog.text


@pytest.mark.parametrize("name", ["timeout_seconds", "retry_seconds"])
@pytest.mark.parametrize("seconds", [1e300, math.inf, math.nan, -1.0])
def test_a_time_that_nobody_can_wait_is_refused(name: str, seconds: float) -> None:
    with pytest.raises(ConfigError, match=rf"{name}=\S+: is no time to wait; give 0 to 1209600"):
        RewardClient("http://127.0.0.1:9", **{name: seconds})


def test_certificates_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("no certificate")
    for name in ("none.pem", "ca.pem"):
        with pytest.raises(ConfigError, match=f"certificates={tmp_path}/{name}: cannot be used"):
            RewardClient("https://127.0.0.1:9", certificates=tmp_path / name)


def test_a_token_file_that_is_no_text_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_bytes(b"\xff\xfe")
    monkeypatch.setenv("COOPER_REWARD_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("COOPER_REWARD_TOKEN_FILE", str(tmp_path / "token"))
    with pytest.raises(ConfigError, match=f"COOPER_REWARD_TOKEN_FILE={tmp_path}/token: holds no token"):
        RewardClient.from_environment()
