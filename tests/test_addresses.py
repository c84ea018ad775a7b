"""Addresses are shown without what opens them, wherever they are shown."""

import json
import logging
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cooper_rl.__main__ import main
from cooper_rl.addresses import (
    RedactingFormatter,
    addresses_in,
    opens_something,
    redact,
    redact_all,
    redact_output,
    split_user,
)
from cooper_rl.config.data import ServerConfig
from cooper_rl.errors import DataError, ServerError, StorageError
from cooper_rl.method.prompts import ChatPrompt
from cooper_rl.servers.chat import ChatClient
from cooper_rl.servers.judge import ChatJudge
from cooper_rl.storage.remote_data import download
from tests.stand_ins.serving import serving

SECRET = "hunter2-Zq"
SCHEMES = st.sampled_from(["http", "https", "mysql+pymysql", "postgresql", "HTTPS"])
AROUND = st.text(st.characters(codec="utf-8", exclude_characters="@"), max_size=10)


@given(scheme=SCHEMES, before=AROUND, after=AROUND, user=st.sampled_from(["", "me", "me:you"]))
def test_no_password_is_shown_whatever_stands_round_it(
    scheme: str, before: str, after: str, user: str
) -> None:
    """Written as it is, or percent-encoded, also with the characters that end a host or an address."""
    for password in (before + SECRET + after, quote(before, safe="") + SECRET + quote(after, safe="")):
        shown = redact(f"{scheme}://{user}:{password}@host.example:80/data.jsonl")
        assert shown == f"{scheme}://***@host.example:80/data.jsonl"
        address = f"{scheme}://{user}:{password}@host.example/x"
        assert SECRET not in redact_all(f"{address}: cannot be used ({address!r})", address)


@given(name=st.sampled_from(["X-Amz-Signature", "sig", "token", "a b", "?"]), after=AROUND)
def test_no_query_and_no_fragment_is_shown(name: str, after: str) -> None:
    for mark in ("?", "#", "/data.jsonl?", "/data.jsonl#"):
        shown = redact(f"https://host.example{mark}{name}={SECRET}{after}")
        assert SECRET not in shown
        assert shown.startswith("https://host.example")
        assert shown.endswith("***")


@pytest.mark.parametrize(
    "text",
    [
        "https://host.example:443/a/b.jsonl",
        "s3://bucket/prefix/odd#name?x@y",
        f"s3://bucket/model#sha256={'0' * 64}",
        "/a/folder@home/x?y",
        "openai/gsm8k:main:train",
        "",
    ],
)
def test_what_opens_nothing_is_shown_as_it_is(text: str) -> None:
    assert redact(text) == text
    assert redact_all(f"({text})") == f"({text})"


def test_a_bucket_with_a_password_is_redacted() -> None:
    assert redact(f"s3://me:{SECRET}@bucket/prefix") == "s3://***@bucket/prefix"


@given(password=st.text(st.characters(codec="utf-8"), min_size=1, max_size=10))
def test_what_opens_an_address_is_parted_from_it_and_said_as_it_is_meant(password: str) -> None:
    encoded = f"https://me:{quote(password, safe='')}@host.example/v1"
    assert split_user(encoded) == ("https://host.example/v1", f"me:{password}")
    for plain in ("https://host.example/v1", "https://host.example/@team/v1", "https://host.example?to=a@b"):
        assert split_user(plain) == (plain, None)


@given(value=st.text(max_size=20))
def test_addresses_in_settings_are_found_as_they_stand_there_and_as_they_are_read(value: str) -> None:
    """A TOML string writes quotes, line breaks and backslashes in another way than what is read from it."""
    address = f"http://me:{value}@host.example/x"
    for setting in (f"a.b=[{json.dumps(address)}]", {"a": [address]}, (f"a.b={address}",)):
        assert address in addresses_in(setting)
        assert opens_something(setting)
    assert not opens_something({"a": ["http://host.example/x", 1, None, "s3://bucket/x"]})


def test_every_error_of_ours_is_redacted_and_keeps_what_else_it_was_given() -> None:
    error = StorageError(f"https://me:{SECRET}@host/ is gone", 7)
    assert error.args == ("https://***@host/ is gone", 7)


def test_log_lines_and_tracebacks_are_redacted() -> None:
    error = ValueError(f"https://me:{SECRET}@host/ is gone")
    record = logging.LogRecord(
        "x", 20, "", 1, "asked %s", (f"https://h/?k={SECRET}",), (ValueError, error, None)
    )
    shown = RedactingFormatter(logging.Formatter("%(message)s")).format(record)
    assert SECRET not in shown
    assert "https://***@host/ is gone" in shown


def test_a_log_that_is_redacted_already_hides_known_addresses_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a text an address ends at a blank: only one that is known holds a blank in its password."""
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    address = f"http://me:a?b {SECRET}@host.example/x"
    handler = logging.StreamHandler()
    handler.setFormatter(RedactingFormatter(logging.Formatter("%(message)s")))
    monkeypatch.setattr(logging.getLogger(), "handlers", [handler])
    redact_output(address)
    record = logging.LogRecord("x", 20, "", 1, "asked %s", (address,), None)
    assert handler.format(record) == "asked http://***@host.example/x"


def test_a_download_that_fails_shows_no_credential(tmp_path: Path) -> None:
    for address in (
        f"http://me:{SECRET}@127.0.0.1:9/data.jsonl",
        f"http://127.0.0.1:9/data.jsonl?X-Amz-Signature={SECRET}",
        f"http://me:{SECRET}@[::1/data.jsonl",
        f"http://me:{SECRET} x@127.0.0.1:9/data.jsonl",
    ):
        with pytest.raises(DataError, match="cannot be downloaded") as found:
            download(address, tmp_path)
        assert SECRET not in str(found.value)


def test_a_servers_password_is_in_no_error_and_not_in_the_journals_key() -> None:
    server = ServerConfig(
        base_url=f"http://me:{SECRET}@127.0.0.1:9/v1", model="m", max_attempts=1, timeout_seconds=1
    )
    assert SECRET not in ChatJudge(server).identity
    client = ChatClient(server)
    shown = []
    for seed in range(200):
        try:
            client.ask(ChatPrompt("system", "user"), seed=seed)
        except ServerError as error:
            shown.append(str(error))
            break
        except Exception as error:
            shown.append(str(error))
    assert "requests in a row failed" in shown[-1]
    assert SECRET not in "".join(shown)


class _Rows(BaseHTTPRequestHandler):
    """Six problems and a row that is none."""

    def do_GET(self) -> None:
        rows = [{"question": f"What is {number} + 1?", "answer": str(number + 1)} for number in range(6)]
        self.send_response(200)
        self.end_headers()
        self.wfile.write("\n".join([*map(json.dumps, rows), "no JSON", ""]).encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_collecting_from_an_address_with_a_password_leaves_none_in_any_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """A row that is set aside names its source, and so do the log and the error where nothing can be read."""
    server = HTTPServer(("127.0.0.1", 0), _Rows)
    outputs: list[str] = []
    for name in ("problems", "held-out", "rejected", "report"):
        outputs += [f"--{name}", str(tmp_path / name)]

    def collect(port: int) -> int:
        source = json.dumps([f"http://me:{SECRET}@127.0.0.1:{port}/data.jsonl?sig={SECRET}"])
        changes = [f"problems.sources={source}", "problems.num_tiny=0", "problems.num_held_out=1"]
        options = [word for change in changes for word in ("--set", change)]
        return main(["collect-problems", "--preset", "laptop", *options, *outputs])

    with serving(server):
        assert collect(server.server_port) == 0
    (rejected,) = (tmp_path / "rejected").read_text(encoding="utf-8").splitlines()
    assert json.loads(rejected)["file"] == f"http://***@127.0.0.1:{server.server_port}/data.jsonl?***"
    assert collect(9) == 2
    assert "http://***@127.0.0.1:9/data.jsonl?***: cannot be downloaded" in capsys.readouterr().err
    assert SECRET not in caplog.text
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) == 4
    assert not [path for path in files if SECRET in path.read_text(encoding="utf-8")]
