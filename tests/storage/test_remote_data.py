"""Downloads from a real server on this machine; the hub's client on a folder and without a network."""

import gzip
import io
import json
import os
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from cooper_rl.errors import DataError
from cooper_rl.storage import s3
from cooper_rl.storage.base import PIECE_BYTES
from cooper_rl.storage.remote_data import HubId, download, fetch_object, parse_hub_id, read_hub
from tests.stand_ins.fixtures import make_client, storage_config
from tests.stand_ins.serving import serving

ROWS = b'{"question": "q", "answer": "1"}\n'
OBEYED = "\x1b[2J"
"""Clears a terminal."""


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/missing.jsonl":
            self.send_error(404)
            return
        if self.path == "/hostile.jsonl":
            self.send_response(404, f"Not{OBEYED}Found")
            self.end_headers()
            return
        if self.path == "/moved.jsonl":
            self.send_response(302)
            self.send_header("Location", "/a/train.jsonl?download=true")
            self.end_headers()
            return
        self.send_response(200)
        kind = "text/html; charset=utf-8" if "page" in self.path else "text/plain"
        self.send_header("Content-Type", kind + (OBEYED if "hostile" in self.path else ""))
        packed = {"packed.jsonl": gzip.compress(ROWS) * 2, "cut.jsonl": gzip.compress(ROWS)[:-9],
                  "bomb.jsonl": gzip.compress(bytes(50_000_000))}.get(self.path[1:])  # fmt: skip
        if packed is not None:
            assert self.headers["Accept-Encoding"] == "gzip", "all that is unpacked within a bound"
            self.send_header("Content-Encoding", "gzip")
            self.end_headers()
            self.wfile.write(packed)
            return
        if "announced" in self.path:
            self.send_header("Content-Length", "5000000000")
        self.end_headers()
        for _ in range(40 if "slow" in self.path else 1):
            self.wfile.write(ROWS if "big" not in self.path else ROWS * 4000)
            self.wfile.flush()
            if "slow" in self.path:
                time.sleep(0.05)
        if "silent" in self.path:
            time.sleep(1)

    def log_message(self, format, *args):
        pass


@pytest.fixture(scope="module")
def server():
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), _Handler)) as url:
        yield url


def test_a_file_is_streamed_under_its_own_name(server, tmp_path):
    path = download(f"{server}/a/train%20set.jsonl?x=1", tmp_path)
    assert path == tmp_path / "train set.jsonl"
    assert path.read_bytes() == ROWS


@pytest.mark.parametrize("name", ["TRAIN.CSV", "train.Parquet"])
def test_a_suffix_counts_in_any_case_as_that_of_a_file_here(server, s3_server, bucket, tmp_path, name):
    assert download(f"{server}/{name}", tmp_path).name == name
    config = storage_config(s3_server.endpoint, bucket)
    client = make_client(s3_server.port, s3_server.account)
    client.put_object(bucket, name, io.BytesIO(ROWS), len(ROWS))
    assert fetch_object(config, f"s3://{bucket}/{name}", tmp_path / "fetched").name == name


def test_redirects_are_followed_and_a_nameless_file_is_jsonl(server, tmp_path):
    assert download(f"{server}/moved.jsonl", tmp_path).read_bytes() == ROWS
    assert download(f"{server}/export", tmp_path).name == "export.jsonl"


def test_a_refusal_names_the_status(server, tmp_path):
    with pytest.raises(DataError, match=r"/missing.jsonl: the server answered 404 Not Found; check the addr"):
        download(f"{server}/missing.jsonl", tmp_path)


def test_what_a_server_says_cannot_write_on_the_terminal(server, tmp_path):
    with pytest.raises(
        DataError, match="the server answered 404 Not\N{REPLACEMENT CHARACTER}\\[2JFound; check"
    ):
        download(f"{server}/hostile.jsonl", tmp_path)
    with pytest.raises(
        DataError, match="\\(text/html; charset=utf-8\N{REPLACEMENT CHARACTER}\\[2J\\), not a"
    ):
        download(f"{server}/hostile_page.jsonl", tmp_path)


def test_a_web_page_is_not_a_data_file(server, tmp_path):
    with pytest.raises(DataError, match=r"is a web page \(text/html.*use the address of the raw file"):
        download(f"{server}/page.jsonl", tmp_path)


@pytest.mark.parametrize("name", ["big.jsonl", "announced.jsonl"])
def test_a_file_over_the_limit_is_refused_while_it_arrives(server, tmp_path, name):
    with pytest.raises(DataError, match=r"is larger than 0 MB; download it yourself"):
        download(f"{server}/{name}", tmp_path, max_bytes=10_000)


def test_a_packed_file_is_unpacked_within_the_limit(server, tmp_path):
    assert download(f"{server}/packed.jsonl", tmp_path).read_bytes() == ROWS * 2
    with pytest.raises(DataError, match=r"cut.jsonl: cannot be downloaded .*the answer ends in the middle"):
        download(f"{server}/cut.jsonl", tmp_path)
    with pytest.raises(DataError, match=r"bomb.jsonl: is larger than 2 MB"):
        download(f"{server}/bomb.jsonl", tmp_path, max_bytes=2_000_000)


def test_a_trickle_and_a_silent_server_run_into_the_time_limits(server, tmp_path):
    with pytest.raises(DataError, match=r"slow.jsonl: too slow, .* bytes when time was up"):
        download(f"{server}/slow.jsonl", tmp_path, max_seconds=0.2)
    with pytest.raises(DataError, match=r"silent.jsonl: cannot be downloaded \(ReadTimeout"):
        download(f"{server}/silent.jsonl", tmp_path, silence_seconds=0.2)


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/x.jsonl", "http://[bad/x.jsonl"])
def test_an_unreachable_or_malformed_address_is_named_with_the_remedy(url, tmp_path):
    with pytest.raises(DataError, match=r"cannot be downloaded .*download the file elsewhere and give its"):
        download(url, tmp_path)


def test_hub_ids_have_a_name_and_optionally_config_and_split():
    assert parse_hub_id("openai/gsm8k:main:test") == HubId("openai/gsm8k", "main", "test")
    assert parse_hub_id("openai/gsm8k:main") == HubId("openai/gsm8k", "main", "train")
    assert parse_hub_id("openai/gsm8k") == HubId("openai/gsm8k", None, "train")
    assert [parse_hub_id(text) for text in ("gsm8k", "a/b/c", "a/b:c:d:e", "a b/c")] == [None] * 4
    with pytest.raises(DataError, match="'a/b/c' is no hub data set id; write owner/name:config:split"):
        next(read_hub("a/b/c"))


def test_without_the_extra_the_hub_names_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(
        DataError, match=r"pip install '\.\[hub\]' in a clone, .*; or give the path of a downloaded"
    ):
        next(read_hub("openai/gsm8k:main:train"))


def test_hub_rows_are_read_and_a_missing_hub_names_the_offline_remedy(tmp_path):
    """In a process of its own: the client fixes cache and offline mode when it is imported."""
    pytest.importorskip("datasets", reason="needs the extra hub")
    (tmp_path / "owner" / "name").mkdir(parents=True)
    (tmp_path / "owner" / "name" / "train.jsonl").write_bytes(ROWS * 3)
    code = """if True:
        import json
        from cooper_rl.storage.remote_data import read_hub
        from cooper_rl.errors import DataError
        print(json.dumps([[row.file, row.row, row.value] for row in read_hub("owner/name")]))
        try:
            next(read_hub("owner/absent:main:train"))
        except DataError as error:
            print(error)
    """
    environment = os.environ | {"HF_HOME": str(tmp_path / "cache"), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    rows, message = done.stdout.strip().splitlines()
    assert json.loads(rows)[2] == ["owner/name", 3, {"question": "q", "answer": "1"}]
    assert message.startswith("owner/absent:main:train: the hub data set cannot be read")
    assert "download its Parquet file on another machine and give the path" in message


def test_a_data_set_that_the_hub_does_not_give_is_refused_with_the_real_reason(tmp_path):
    """A stand-in for the hub refuses by the id; its library tells both apart in the first error only."""
    pytest.importorskip("datasets", reason="needs the extra hub")

    class Hub(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            is_gated = "gated" in self.path
            self.send_response(403 if is_gated else 404)
            self.send_header("x-error-code", "GatedRepo" if is_gated else "RepoNotFound")
            self.send_header("content-length", "0")
            self.end_headers()

        def do_HEAD(self) -> None:
            self.do_GET()

        def log_message(self, format: str, *_: object) -> None:
            pass

    code = """if True:
        from cooper_rl.storage.remote_data import read_hub
        from cooper_rl.errors import DataError
        for name in ("owner/gated:main:train", "owner/absent:main:train"):
            try:
                next(read_hub(name))
            except DataError as error:
                print(error)
    """
    kept = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Hub)) as url:
        environment = kept | {"HF_HOME": str(tmp_path / "cache"), "HF_ENDPOINT": url}
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
        )
    gated, absent = done.stdout.strip().splitlines()
    assert gated.startswith("owner/gated:main:train: the hub data set cannot be read: its owner lets in only")
    assert "accept them on its page of the hub, and give your token (HF_TOKEN, or hf auth login)" in gated
    assert absent.startswith("owner/absent:main:train: the hub data set cannot be read: the hub has no such")


def test_an_object_over_the_limit_is_refused_before_it_is_fetched(s3_server, bucket, tmp_path):
    config = storage_config(s3_server.endpoint, bucket)
    address = f"s3://{bucket}/problems/mine.jsonl"
    with pytest.raises(DataError, match=r"mine\.jsonl: no such object; check bucket, prefix and name"):
        fetch_object(config, address, tmp_path)
    (tmp_path / "mine.jsonl").write_bytes(ROWS * 100)
    client = make_client(s3_server.port, s3_server.account)
    client.fput_object(bucket, "problems/mine.jsonl", str(tmp_path / "mine.jsonl"))
    with pytest.raises(DataError, match=r"mine\.jsonl: is larger than 0 MB; download it yourself"):
        fetch_object(config, address, tmp_path / "small", max_bytes=1000)
    assert not (tmp_path / "small").exists()
    assert fetch_object(config, address, tmp_path / "large").read_bytes() == ROWS * 100


def test_an_object_that_is_replaced_while_it_is_read_is_no_mixture(s3_server, bucket, tmp_path, monkeypatch):
    """As large as before, and so told apart by its tag alone."""
    config, client = (
        storage_config(s3_server.endpoint, bucket),
        make_client(s3_server.port, s3_server.account),
    )

    def put(letter: bytes) -> None:
        client.put_object(bucket, "mine.jsonl", io.BytesIO(letter * (PIECE_BYTES + 9)), PIECE_BYTES + 9)

    put(b"a")
    real_save = s3.save_piece

    def save_and_replace(*arguments, **options):
        digest = real_save(*arguments, **options)
        put(b"b")
        return digest

    monkeypatch.setattr(s3, "save_piece", save_and_replace)
    with pytest.raises(DataError, match=r"mine\.jsonl: was replaced while it was read; start again when"):
        fetch_object(config, f"s3://{bucket}/mine.jsonl", tmp_path)
    monkeypatch.setattr(s3, "save_piece", real_save)
    assert fetch_object(config, f"s3://{bucket}/mine.jsonl", tmp_path).read_bytes() == b"b" * (
        PIECE_BYTES + 9
    )
