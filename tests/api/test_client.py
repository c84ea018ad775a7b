"""`RewardClient`: what can never succeed is refused at once, and no message holds the token."""

import logging
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from cooper_rl import RewardClient
from cooper_rl.errors import ConfigError
from tests.stand_ins.serving import serving

TOKEN = "sesame-of-24-characters"


class Rewarding(BaseHTTPRequestHandler):
    """Gives one reward to who has the token."""

    def do_POST(self) -> None:
        content = b'{"rewards": [0.5]}'
        self.send_response(200 if self.headers["authorization"] == f"Bearer {TOKEN}" else 401)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None: ...


def test_an_address_without_its_scheme_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="url='rewards:8080': write it with http:// or https://"):
        RewardClient("rewards:8080")


def test_a_token_as_its_file_has_it_is_sent_without_the_line_break() -> None:
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Rewarding)) as url:
        client = RewardClient(url, token=f"{TOKEN}\n", retry_seconds=0)
        assert client(["2"], questions=["1+1?"], reference_answers=["2"]) == [0.5]
        client.close()


@pytest.mark.parametrize("token", [f"{TOKEN}\nother", f"{TOKEN}\0", f"{TOKEN}ü", " \n"])
def test_a_token_that_no_header_can_carry_is_refused_and_not_shown(
    token: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG), pytest.raises(ConfigError, match="give the token alone") as found:
        RewardClient("http://127.0.0.1:9", token=token)
    assert "sesame" not in str(found.value) + caplog.text


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
