"""What of the environment stands between this machine and a server, named in the error."""

import gzip
import os
import ssl
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import httpx
import pytest

from cooper_rl.errors import ConfigError, DataError
from cooper_rl.outgoing import PIECE_BYTES, describe, hub_obstacle, open_client, through, unpack
from cooper_rl.storage.remote_data import download
from tests.stand_ins.serving import serving


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


class Proxy(BaseHTTPRequestHandler):
    """A company's, which wants a login."""

    def do_GET(self) -> None:
        self.send_error(403)

    def log_message(self, format: str, *_: object) -> None:
        pass


def test_a_refusal_of_a_proxy_names_the_proxy_and_its_variable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with serving(HTTPServer(("127.0.0.1", 0), Proxy)) as url:
        monkeypatch.setenv("HTTP_PROXY", url.replace("http://", "http://user:pa55word@"))
        with pytest.raises(DataError) as caught:
            download("http://data.example/x.jsonl", tmp_path)
    proxy = url.replace("http://", "http://***@")
    assert str(caught.value).startswith(
        f"http://data.example/x.jsonl: the server answered 403 Forbidden, asked through the proxy {proxy} of "
        "HTTP_PROXY: if data.example needs none, name it in NO_PROXY; check the address"
    )


def test_a_proxy_is_not_named_where_it_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert through("http://judge:8000/v1") == ""
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    assert through("http://judge:8000/v1") == ""
    assert "the proxy http://proxy:3128 of HTTPS_PROXY" in through("https://judge:8000/v1")
    monkeypatch.setenv("ALL_PROXY", "http://other:3128")
    assert "the proxy http://other:3128 of ALL_PROXY" in through("http://judge:8000/v1")
    monkeypatch.setenv("NO_PROXY", "judge,.lan")
    assert through("http://judge:8000/v1") == through("https://assistant.lan/v1") == ""


def test_a_full_disk_behind_an_error_of_the_hubs_libraries_is_the_reason() -> None:
    """The last error blames the connection, and was raised `from None`."""

    def fetch() -> None:
        try:
            Path("/dev/full").write_text("x")
        except OSError:
            raise ConnectionError("Couldn't reach the Hugging Face Hub") from None

    with pytest.raises(ConnectionError) as caught:
        fetch()
    found = hub_obstacle(caught.value)
    assert found is not None
    assert found.reason == "the disk is full ([Errno 28] No space left on device)"
    assert found.remedy.startswith("free space below ")
    assert hub_obstacle(ConnectionError("Couldn't reach the Hugging Face Hub")) is None


@pytest.mark.parametrize(
    ("variable", "value"), [("ALL_PROXY", "gopher://proxy:70"), ("SSL_CERT_FILE", "/nowhere/ca.pem")]
)
def test_a_variable_that_no_client_can_use_is_an_error_of_use(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigError, match=r"no HTTP client can be made \(.*ALL_PROXY.* SSL_CERT_FILE"):
        open_client(1.0)


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        (18, "the certificate is not trusted: name a PEM file with its authority in SSL_CERT_FILE"),
        (10, "the certificate is not valid now: renew it, or set this machine's clock"),
    ],
)
def test_a_certificate_that_is_refused_names_the_remedy(code: int, remedy: str) -> None:
    cause = ssl.SSLCertVerificationError("certificate verify failed")
    cause.verify_code = code
    error = httpx.ConnectError("certificate verify failed")
    error.__cause__ = cause
    assert describe(error, "https://judge/v1") == f"ConnectError: certificate verify failed, {remedy}"


def test_a_body_is_unpacked_in_pieces_that_are_bounded_however_it_arrives() -> None:
    text = bytes(3_000_000) + os.urandom(100_000)
    packed = gzip.compress(text[:1_000_000]) + gzip.compress(text[1_000_000:])
    headers = {"content-encoding": "GZIP"}
    for size in (17, 1000, len(packed)):
        parts = [packed[start : start + size] for start in range(0, len(packed), size)]
        pieces = list(unpack(parts, headers))
        assert b"".join(pieces) == text
        assert max(map(len, pieces)) <= PIECE_BYTES
    assert list(unpack([b"as", b"it is"], {})) == [b"as", b"it is"]


def test_what_other_readers_of_gzip_take_is_unpacked_too() -> None:
    packed = gzip.compress(b"rows") + bytes(20)
    for parts in ([packed], [packed[place : place + 1] for place in range(len(packed))]):
        assert b"".join(unpack(parts, {"content-encoding": "x-gzip"})) == b"rows"
    assert list(unpack([b"rows"], {"content-encoding": " "})) == [b"rows"]


def test_many_small_gzip_files_in_a_row_take_no_more_than_their_length() -> None:
    """All in one part they took minutes: zlib copied the rest of it for each of them."""
    started = time.process_time()
    assert b"".join(unpack([gzip.compress(b"") * 50_000], {"content-encoding": "gzip"})) == b""
    assert time.process_time() - started < 5


@pytest.mark.parametrize(
    ("body", "encoding", "said"),
    [
        (b"no gzip", "gzip", "is no gzip"),
        (gzip.compress(b"rows", mtime=0)[:-1], "gzip", "ends in the middle of its gzip"),
        (b"", "gzip", "ends in the middle of its gzip"),
        (b"rows", "br", "packed as 'br', which was not asked for"),
    ],
)
def test_a_body_that_cannot_be_unpacked_is_refused(body: bytes, encoding: str, said: str) -> None:
    with pytest.raises(httpx.DecodingError, match=said):
        list(unpack([body], {"content-encoding": encoding}))
