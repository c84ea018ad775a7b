"""A store on an S3 server: uploads in parts, credentials, addresses, TLS, and what is refused."""

import os
import socket
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from minio.datatypes import Part

from cooper_rl.config.infrastructure import StorageConfig
from cooper_rl.errors import StorageError, WriteConflictError
from cooper_rl.storage.open import open_store
from cooper_rl.storage.s3 import S3Store
from tests.stand_ins.fixtures import make_client, storage_config
from tests.stand_ins.serving import serving
from tests.storage.objects import MIB, make_file


def test_what_interrupted_uploads_left_is_removed_and_never_listed(bucket: str, s3_server) -> None:
    config = storage_config(s3_server.endpoint, bucket)
    store = open_store(config, f"{config.uri}")
    client = make_client(s3_server.port, s3_server.account)
    for name in ("runs/step-1/a", "runs/step-1/b", "runs/step-1/a.txt", "other/c"):
        upload = client._create_multipart_upload(bucket, name, {})
        client._upload_part(bucket, name, b"x", {}, upload, 1)
    assert store.keys("") == []
    # S3 does not tell what was being uploaded: of a key every upload counts, once, whatever the hashes are.
    own = [("step-1/a", "0" * 64), ("step-1/a", "1" * 64), ("step-1/b", "0" * 64)]
    assert store.remove_unfinished(own) == 2
    assert store.remove_unfinished(own) == 0
    left = client._list_multipart_uploads(bucket).uploads
    assert sorted(upload.object_name for upload in left) == ["other/c", "runs/step-1/a.txt"]


def test_an_upload_of_a_name_that_a_listing_encodes_is_removed_too(bucket: str, s3_server) -> None:
    config = storage_config(s3_server.endpoint, bucket)
    store = open_store(config, f"{config.uri}")
    client = make_client(s3_server.port, s3_server.account)
    names = ("Modèles 1/a+b", "Modèles 1/a b", "Modèles 1/a%20b")
    for name in names:
        client._create_multipart_upload(bucket, f"runs/{name}", {})
    for name in names:
        assert store.remove_unfinished([(name, "0" * 64)]) == 1
    assert client._list_multipart_uploads(bucket).uploads == []


def test_a_file_in_parts_is_stored_without_a_word_of_failure(
    bucket: str, s3_server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Ceph 16 names no tag in its first answer, and there is no time for a second one."""
    config = storage_config(s3_server.endpoint, bucket, retry_seconds=0.0)
    store = open_store(config, config.uri or "")
    path, sha256 = make_file(tmp_path, 11 * MIB)
    store.put_file("weights", path, sha256=sha256)
    assert store.holds("weights", sha256)
    assert "asking again" not in caplog.text


def test_a_file_of_too_many_parts_is_stored_in_larger_ones(
    bucket: str, s3_server, tmp_path: Path, monkeypatch
) -> None:
    """As one beyond 156 GiB with parts of 16 MiB: 11 MiB in at most two parts, where three of 5 MiB are
    configured."""
    monkeypatch.setattr("cooper_rl.storage.s3.MAX_PARTS", 2)
    config = storage_config(s3_server.endpoint, bucket)
    assert config.part_mib == 5
    store = open_store(config, config.uri or "")
    path, sha256 = make_file(tmp_path, 11 * MIB + 1)
    store.put_file("weights", path, sha256=sha256)
    stored = make_client(s3_server.port, s3_server.account).stat_object(bucket, "runs/weights")
    assert str(stored.etag).endswith("-2")
    store.get_file("weights", tmp_path / "back", sha256=sha256)
    assert (tmp_path / "back").read_bytes() == path.read_bytes()


def test_an_upload_whose_parts_another_run_removes_says_that_there_are_two(
    bucket: str, gateway, tmp_path: Path
) -> None:
    """At a real server: moto 5.2.5 answers such a part with 500."""
    config = storage_config(gateway.endpoint, bucket, num_parallel=1)
    store, other = (open_store(config, config.uri or "") for _ in range(2))
    path, sha256 = make_file(tmp_path, 11 * MIB)
    assert isinstance(store, S3Store)
    sender = store._sender  # pyright: ignore[reportPrivateUsage]

    def send_late(key: str, path: Path, upload: str, *, part_size: int) -> Callable[[int], Part]:
        assert other.remove_unfinished([("weights", sha256)]) == 1
        return sender(key, path, upload, part_size=part_size)

    store._sender = send_late  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(StorageError, match=r"weights: somebody else removed its parts; two runs use this"):
        store.put_file("weights", path, sha256=sha256)


def test_a_failed_upload_leaves_no_parts_behind(bucket: str, s3_server, tmp_path: Path) -> None:
    """The file vanishes after the first part: a stand-in for a disk error."""
    config = storage_config(s3_server.endpoint, bucket, num_parallel=1)
    store = open_store(config, config.uri or "")
    path, sha256 = make_file(tmp_path, 11 * MIB)
    assert isinstance(store, S3Store)
    store._sender = lambda *_, **__: lambda _: path.with_name("gone").read_bytes()  # pyright: ignore
    with pytest.raises(OSError, match="gone"):
        store.put_file("weights", path, sha256=sha256)
    client = make_client(s3_server.port, s3_server.account)
    assert client._list_multipart_uploads(bucket).uploads == []


def test_memory_of_a_transfer_is_bounded(bucket: str, s3_server, tmp_path: Path) -> None:
    """A file of 20 parts; at most twice `num_parallel` of them may be held."""
    import tracemalloc

    config = storage_config(s3_server.endpoint, bucket, num_parallel=2)
    store = open_store(config, config.uri or "")
    path, sha256 = make_file(tmp_path, 100 * MIB)
    bound = 2 * 2 * 5 * MIB + 5 * MIB
    tracemalloc.start()
    try:
        store.put_file("weights", path, sha256=sha256)
        assert tracemalloc.get_traced_memory()[1] < bound
        tracemalloc.reset_peak()
        store.get_file("weights", tmp_path / "back", sha256=sha256)
        assert tracemalloc.get_traced_memory()[1] < bound
    finally:
        tracemalloc.stop()


def test_credentials_come_from_mounted_files_and_follow_their_rotation(
    bucket: str, gateway, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    (tmp_path / "access_key").write_text(gateway.account.access_key + "\n")
    (tmp_path / "secret_key").write_text("outdated\n")
    config = storage_config(gateway.endpoint, bucket, credentials=tmp_path)
    store = open_store(config, config.uri or "")
    with pytest.raises(StorageError, match=f"credentials are refused; check {tmp_path}"):
        store.write("x", b"1", replaces=None)
    (tmp_path / "secret_key").write_text(gateway.account.secret_key)
    store.write("x", b"1", replaces=None)


def test_the_bucket_may_stand_in_the_host_name(bucket: str, gateway, tmp_path: Path, monkeypatch) -> None:
    """As AWS wants it; names below localhost lead to this machine, which a DNS server would say."""
    resolve = socket.getaddrinfo

    def resolve_below(host, *arguments, **options):
        return resolve("127.0.0.1" if host == f"{bucket}.localhost" else host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", resolve_below)
    endpoint = f"http://localhost:{gateway.port}"
    config = storage_config(endpoint, bucket, path_style=False)
    store = open_store(config, config.uri or "")
    path, sha256 = make_file(tmp_path, 11 * MIB)
    store.put_file("step/file", path, sha256=sha256)
    store.get_file("step/file", tmp_path / "back", sha256=sha256)
    assert store.keys("") == ["step/file"]
    client = make_client(gateway.port, gateway.account)
    assert [item.object_name for item in client.list_objects(bucket, recursive=True)] == ["runs/step/file"]


@pytest.mark.usefixtures("some_credentials")
def test_a_bucket_in_a_host_name_that_leads_nowhere_names_the_setting() -> None:
    config = storage_config("http://localhost:1", "bucket", path_style=False, retry_seconds=0)
    with pytest.raises(StorageError, match=r"storage\.endpoint is right, and storage\.path_style$"):
        open_store(config, config.uri or "").read("x")


def test_everything_goes_through_tls_that_only_its_own_authority_vouches_for(
    bucket: str, gateway, tmp_path: Path
) -> None:
    """Over TLS the client signs requests in another way; without the bundle nothing is sent."""
    config = storage_config(gateway.tls_endpoint, bucket, ca_bundle=gateway.ca_bundle)
    store = open_store(config, config.uri or "")
    path, sha256 = make_file(tmp_path, 11 * MIB)
    store.put_file("step/file", path, sha256=sha256)
    store.get_file("step/file", tmp_path / "back", sha256=sha256)
    tag = store.write("LATEST", b"one", replaces=None)
    with pytest.raises(WriteConflictError, match="LATEST: somebody else wrote it"):
        store.write("LATEST", b"two", replaces=None)
    store.write("LATEST", b"two", replaces=tag)
    assert store.keys("") == ["LATEST", "step/file"]
    store.delete(["LATEST"])
    assert store.remove_unfinished([("step/file", sha256)]) == 0
    stranger = open_store(storage_config(gateway.tls_endpoint, bucket), config.uri or "")
    with pytest.raises(
        StorageError, match=r"certificate verify failed.*; .*, and storage\.ca_bundle"
    ) as refused:
        stranger.read("step/file")
    assert "after trying" not in str(refused.value)


def test_the_authority_may_be_named_by_the_environment(bucket: str, gateway, monkeypatch) -> None:
    """As for every other server; Kubeflow gives tasks the variable where it has its own authority."""
    config = storage_config(gateway.tls_endpoint, bucket)
    monkeypatch.setenv("SSL_CERT_FILE", str(gateway.ca_bundle))
    assert open_store(config, config.uri or "").read("absent") is None
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere/ca.pem")
    with pytest.raises(StorageError, match=r"SSL_CERT_FILE=/nowhere/ca\.pem: no such file"):
        open_store(config, config.uri or "")


def test_an_unreadable_or_empty_secret_is_refused(tmp_path: Path) -> None:
    config = storage_config("http://127.0.0.1:1", "bucket", credentials=tmp_path)
    with pytest.raises(StorageError, match=r"access_key: cannot be read .* must be a folder with the files"):
        open_store(config, config.uri or "")
    (tmp_path / "access_key").write_text("")
    with pytest.raises(StorageError, match="access_key: is empty; write the key into it"):
        open_store(config, config.uri or "")


def test_credentials_of_the_environment_may_end_in_a_line_break(gateway, bucket, monkeypatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, os.environ[name] + "\n")
    config = storage_config(gateway.endpoint, bucket)
    assert open_store(config, config.uri or "").read("absent") is None


@pytest.mark.usefixtures("some_credentials")
@pytest.mark.parametrize("key", ["two\nlines", "schlüssel"])
def test_a_key_that_no_request_can_carry_is_refused_without_showing_it(key: str, monkeypatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", key)
    config = storage_config("http://127.0.0.1:1", "bucket")
    with pytest.raises(StorageError, match="AWS_ACCESS_KEY_ID: holds a line break or a character") as refused:
        open_store(config, config.uri or "")
    assert key not in str(refused.value)


def test_missing_credentials_are_refused_before_any_request(monkeypatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_ACCESS_KEY", "AWS_SECRET_ACCESS_KEY", "AWS_SECRET_KEY"):
        monkeypatch.delenv(name, raising=False)
    config = storage_config("http://127.0.0.1:1", "bucket")
    with pytest.raises(StorageError, match="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or"):
        open_store(config, config.uri or "")


@pytest.mark.parametrize(
    "endpoint",
    ["https://me:hunter2@host:9000", "minio:9000", "ftp://host", "http://host/s3", "http://host?x"],
)
def test_an_endpoint_that_is_none_is_refused_without_showing_it(endpoint: str, monkeypatch) -> None:
    config = storage_config(endpoint, "bucket")
    with pytest.raises(StorageError, match="without user or password") as refused:
        open_store(config, config.uri or "")
    assert "hunter2" not in str(refused.value)


@pytest.fixture
def some_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """That nobody looks at."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")


@pytest.mark.usefixtures("some_credentials")
def test_the_whole_of_an_address_is_read() -> None:
    """Two runs must not meet in the part before a `#`."""
    config = storage_config("http://127.0.0.1:1", "bucket")
    assert open_store(config, "s3://bucket/team#1/run").uri == "s3://bucket/team#1/run"
    with pytest.raises(StorageError, match=r"object name 'team\?1/run' is refused"):
        open_store(config, "s3://bucket/team?1/run")
    with pytest.raises(
        StorageError, match=r"must be s3://bucket/prefix, without user or password"
    ) as refused:
        open_store(config, "s3://me:hunter2@bucket/prefix")
    assert "hunter2" not in str(refused.value)


@pytest.mark.usefixtures("some_credentials")
def test_an_endpoint_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(StorageError, match=r"cannot be used \(Invalid IPv6 URL\); check storage\.uri"):
        open_store(storage_config("http://[::1", "bucket"), "s3://bucket/x")


def test_a_missing_ca_bundle_is_refused(tmp_path: Path) -> None:
    config = storage_config("https://host:9000", "bucket", ca_bundle=tmp_path / "ca.pem")
    with pytest.raises(StorageError, match=r"ca\.pem: no such file; give a PEM file"):
        open_store(config, config.uri or "")


def test_an_address_of_another_kind_is_refused_without_showing_it() -> None:
    with pytest.raises(
        StorageError, match=r"storage\.uri=gs://\.\.\.: use s3://bucket/prefix or the"
    ) as refused:
        open_store(StorageConfig(), "gs://me:hunter2@bucket/prefix")
    assert "hunter2" not in str(refused.value)


@pytest.mark.usefixtures("some_credentials")
def test_a_bucket_name_that_is_none_is_refused() -> None:
    with pytest.raises(StorageError, match=r"cannot be used \(.*bucket name.*\); check storage\.uri"):
        open_store(storage_config("http://127.0.0.1:1", "B!"), "s3://B!/x")


@pytest.mark.usefixtures("some_credentials")
def test_a_server_that_is_none_of_s3_is_named_and_nothing_is_taken_for_stored(
    tmp_path: Path,
) -> None:
    class Console(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", 0)))
            self.send_response(200)
            self.send_header("content-length", "6")
            self.end_headers()
            self.wfile.write(b"<html>")

        do_PUT = do_GET  # noqa: N815 - the library's name

        def log_message(self, format: str, *args: object) -> None: ...

    path, sha256 = make_file(tmp_path, 100)
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Console)) as endpoint:
        config = StorageConfig(uri="s3://bucket/test", endpoint=endpoint, run_key="a", path_style=True)
        store = open_store(config, "s3://bucket/test")
        for visit in (
            lambda: store.read("x"),
            lambda: store.write("x", b"1", replaces=None),
            lambda: store.put_file("x", path, sha256=sha256),
        ):
            with pytest.raises(StorageError, match=r"answers as no S3 server does.*check storage\.endpoint"):
                visit()
        with pytest.raises(StorageError, match=r"cannot be used \(ParseError.*storage\.endpoint is right"):
            store.keys("")


@pytest.mark.usefixtures("some_credentials")
@pytest.mark.parametrize("length", [None, "many", "-1"])
def test_a_server_that_does_not_say_how_large_an_object_is_is_told(
    tmp_path: Path, length: str | None
) -> None:
    class Packing(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_response(200)
            self.send_header("etag", '"1"')
            if length is not None:
                self.send_header("content-length", length)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None: ...

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Packing)) as endpoint:
        config = StorageConfig(endpoint=endpoint, path_style=True, region="us-east-1", retry_seconds=0.0)
        store = S3Store(config, "s3://bucket/test")
        for visit in (
            lambda: store.look_at("x"),
            lambda: store.get_file("x", tmp_path / "x", sha256="0" * 64),
        ):
            with pytest.raises(StorageError, match="does not say how large an object is"):
                visit()
