"""What an object store can do to a run, each against a real server: the table of docs/lab/reliability.md."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from cooper_rl.config.infrastructure import StorageConfig
from cooper_rl.errors import DamagedObjectError, StorageError, WriteConflictError
from cooper_rl.storage.base import content_sha256
from cooper_rl.storage.open import open_store
from tests.faults.conftest import Outcome, Trainer, outcome
from tests.full_disk import no_file_beyond
from tests.stand_ins.fixtures import make_client, storage_config
from tests.stand_ins.proxy import Proxy, http_answer
from tests.stand_ins.radosgw import Account, Gateway

MIB = 1 << 20


@pytest.fixture
def part_file(tmp_path: Path) -> Path:
    """Eight parts of an upload, two pieces of a download."""
    path = tmp_path / "weights"
    path.write_bytes(os.urandom(40 * MIB))
    return path


def overrides(config: StorageConfig) -> list[str]:
    """The same storage on the command line of a run."""
    chosen = config.model_dump(mode="json", exclude_defaults=True)
    return [f"storage.{key}={value}" for key, value in chosen.items()]


def environment(account: Account) -> dict[str, str]:
    return {"AWS_ACCESS_KEY_ID": account.access_key, "AWS_SECRET_ACCESS_KEY": account.secret_key}


def test_a_run_keeps_its_checkpoints_on_a_server_and_its_folder_is_a_reference(
    trainer: Trainer, straight: Outcome, gateway: Gateway, bucket: str, tmp_path: Path
) -> None:
    config = storage_config(gateway.endpoint, bucket)
    job = {"environment": environment(gateway.account)}
    assert trainer.run(tmp_path / "one", *overrides(config), **job) == 0, trainer.log()[-3000:]
    assert outcome(tmp_path / "one", config) == straight
    assert (tmp_path / "one" / "reference.json").is_file()
    before = trainer.log().count("finished already")
    assert trainer.run(tmp_path / "two", *overrides(config), **job) == 0
    assert trainer.log().count("finished already") == before + 1
    assert outcome(tmp_path / "two", config) == straight


@pytest.mark.parametrize(("point", "hit"), [("s3_request", 12), ("s3_request", 30), ("manifest", 2),
                                            ("after manifest", 3), ("s3_request", 45), ("reference", 1),
                                            ("after reference", 1)])  # fmt: skip
def test_a_run_killed_while_it_talks_to_the_server_continues_exactly(
    trainer: Trainer, straight: Outcome, gateway: Gateway, bucket: str, tmp_path: Path, point: str, hit: int
) -> None:
    config = storage_config(gateway.endpoint, bucket)
    job = {"environment": environment(gateway.account)}
    killed = trainer.run(tmp_path / "run", *overrides(config), kill={"point": point, "hit": hit}, **job)
    assert killed == -signal.SIGKILL, trainer.log()[-3000:]
    # Another machine: nothing but the store is left.
    assert trainer.run(tmp_path / "elsewhere", *overrides(config), **job) == 0, trainer.log()[-3000:]
    assert outcome(tmp_path / "elsewhere", config) == straight


def test_a_checkpoint_that_a_killed_run_had_fetched_is_removed_by_the_next_start(
    trainer: Trainer, s3_server, bucket: str, tmp_path: Path
) -> None:
    """Killed in step 3, and again as soon as it goes on, when the checkpoint lies in TMPDIR."""
    config, temporary = storage_config(s3_server.endpoint, bucket), tmp_path / "temporary"
    temporary.mkdir()
    job = {"environment": environment(s3_server.account) | {"TMPDIR": str(temporary)}}
    for hit in (3, 1):
        kill = {"point": "policy_update", "hit": hit}
        assert trainer.run(tmp_path / "run", *overrides(config), kill=kill, **job) == -signal.SIGKILL
    assert list(temporary.glob("cooper-rl-*/files/**/policy/model.safetensors"))
    assert trainer.run(tmp_path / "run", *overrides(config), **job) == 0, trainer.log()[-3000:]
    assert list(temporary.glob("cooper-rl-*")) == []


def test_a_store_that_is_down_at_the_start_is_waited_for(bucket: str, s3_server) -> None:
    with Proxy(s3_server.port) as proxy:
        proxy.refuse = True
        store = open_store(storage_config(proxy.endpoint, bucket), f"s3://{bucket}/x")
        threading.Timer(1.0, lambda: setattr(proxy, "refuse", False)).start()
        store.write("LATEST", b"here", replaces=None)


def test_a_store_that_stays_down_stops_the_run_at_once_with_one_clear_error(
    trainer: Trainer, tmp_path: Path
) -> None:
    """A port that nobody listens on; no step is trained first."""
    config = storage_config("http://127.0.0.1:9", "bucket", retry_seconds=0.5)
    status = trainer.run(tmp_path / "run", *overrides(config), environment=environment(Account("a", "b")))
    assert status == 2
    last = trainer.log().strip().splitlines()[-1]
    assert "StorageError: s3://bucket/runs/test/from-000001/LATEST: http://127.0.0.1:9 cannot be used" in last
    assert "check that the server runs and that storage.endpoint is right" in last


def test_a_store_that_dies_in_the_middle_leaves_the_last_checkpoint(
    trainer: Trainer, straight: Outcome, gateway: Gateway, bucket: str, tmp_path: Path
) -> None:
    """Every connection is refused from the second checkpoint on; later the server is back."""
    with Proxy(gateway.port) as proxy:
        config = storage_config(proxy.endpoint, bucket, retry_seconds=0.5)
        job = {"environment": environment(gateway.account)}
        done = threading.Event()

        def watch() -> None:
            client = make_client(gateway.port, gateway.account)
            while not done.is_set():
                names = [str(item.object_name) for item in client.list_objects(bucket, recursive=True)]
                if any(name.endswith("step-000001/manifest.json") for name in names):
                    proxy.refuse = True
                    return
                time.sleep(0.01)

        watcher = threading.Thread(target=watch)
        watcher.start()
        status = trainer.run(tmp_path / "run", *overrides(config), **job)
        done.set()
        watcher.join()
        assert status == 2
        assert "cannot be used" in trainer.log().strip().splitlines()[-1]
        proxy.refuse = False
        assert trainer.run(tmp_path / "run", *overrides(config), **job) == 0, trainer.log()[-3000:]
        assert outcome(tmp_path / "run", config) == straight


def test_a_server_that_restarts_is_waited_for(gateway: Gateway, bucket: str, part_file: Path) -> None:
    config = storage_config(gateway.endpoint, bucket, retry_seconds=20)
    store = open_store(config, f"s3://{bucket}/x")
    gateway.stop()
    threading.Timer(0.5, gateway.start).start()
    store.put_file("weights", part_file, sha256=content_sha256(part_file))
    assert store.keys("") == ["weights"]


@pytest.mark.parametrize("status", ["500 Oops", "503 Slow Down", "429 Too Many Requests", "502 Bad Gateway"])
def test_an_overloaded_server_is_asked_again(
    bucket: str, s3_server, part_file: Path, tmp_path: Path, status: str
) -> None:
    with Proxy(s3_server.port) as proxy:
        store = open_store(storage_config(proxy.endpoint, bucket), f"s3://{bucket}/x")
        proxy.answers = [http_answer(status)] * 3
        store.put_file("weights", part_file, sha256=content_sha256(part_file))
        proxy.answers = [http_answer(status)] * 2
        again = open_store(storage_config(proxy.endpoint, bucket), f"s3://{bucket}/x")
        again.get_file("weights", tmp_path / "back", sha256=content_sha256(part_file))
        assert proxy.answers == []


def test_a_server_that_never_recovers_is_given_up(bucket: str, s3_server) -> None:
    with Proxy(s3_server.port) as proxy:
        proxy.answers = [http_answer("503 Slow Down")] * 100
        store = open_store(storage_config(proxy.endpoint, bucket, retry_seconds=1), f"s3://{bucket}/x")
        with pytest.raises(StorageError, match=r"cannot be used \(HTTP 503\), also after trying for 1 s"):
            store.write("LATEST", b"x", replaces=None)
        assert 2 <= 100 - len(proxy.answers) <= 12


def test_connections_cut_in_the_middle_of_a_part_are_made_again(
    bucket: str, s3_server, part_file: Path, tmp_path: Path
) -> None:
    with Proxy(s3_server.port) as proxy:
        config = storage_config(proxy.endpoint, bucket, num_parallel=2)
        proxy.cut_after = [100_000, 2_000_000, 3 * MIB]
        store = open_store(config, f"s3://{bucket}/x")
        store.put_file("weights", part_file, sha256=content_sha256(part_file))
        proxy.cut_answer_after = [100_000, 3 * MIB]
        again = open_store(config, f"s3://{bucket}/x")
        again.get_file("weights", tmp_path / "back", sha256=content_sha256(part_file))
        assert proxy.cut_after == proxy.cut_answer_after == []
    assert content_sha256(tmp_path / "back") == content_sha256(part_file)


def test_a_conditional_write_whose_answer_was_lost_counts_once(bucket: str, s3_server) -> None:
    """The server has written; the client hears nothing, asks again, and is told that it comes second."""
    with Proxy(s3_server.port) as proxy:
        proxy.cut_answer_after = [0]
        store = open_store(storage_config(proxy.endpoint, bucket), f"s3://{bucket}/x")
        tag = store.write("LATEST", b"step-000001", replaces=None)
        store.write("LATEST", b"step-000002", replaces=tag)


def test_a_conditional_write_counts_once_where_reads_show_what_was_before(bucket: str, s3_server) -> None:
    """MinIO whose drives disagree refuses the old tag, and may show the old object all the same."""
    server = open_store(storage_config(s3_server.endpoint, bucket), f"s3://{bucket}/x")
    tag = server.write("LATEST", b"old", replaces=None)
    refused = http_answer("412 Precondition Failed", "<Error><Code>PreconditionFailed</Code></Error>")
    shown = f"HTTP/1.1 200 OK\r\nETag: {tag}\r\nContent-Length: 3\r\nConnection: close\r\n\r\nold".encode()
    with Proxy(s3_server.port) as proxy:

        def write() -> str:
            proxy.answers = [refused, shown]
            store = open_store(storage_config(proxy.endpoint, bucket), f"s3://{bucket}/x")
            return store.write("LATEST", b"new", replaces=tag)

        with pytest.raises(WriteConflictError):
            write()
        written = server.write("LATEST", b"new", replaces=tag)
        assert write() == written
        assert proxy.answers == []


def test_a_slow_network_slows_transfers_and_nothing_else(
    bucket: str, s3_server, part_file: Path, tmp_path: Path
) -> None:
    with Proxy(s3_server.port) as proxy:
        proxy.delay_seconds = 0.002
        store = open_store(storage_config(proxy.endpoint, bucket), f"s3://{bucket}/x")
        store.put_file("weights", part_file, sha256=content_sha256(part_file))
        store.get_file("weights", tmp_path / "back", sha256=content_sha256(part_file))


def test_a_part_may_take_longer_than_the_server_may_say_nothing(
    bucket: str, s3_server, part_file: Path
) -> None:
    """512 pieces of 64 KiB, each 0.005 s late; the last 6 MiB may lie in the system's buffers."""
    with Proxy(s3_server.port) as proxy:
        proxy.delay_seconds = 0.005
        config = storage_config(proxy.endpoint, bucket, part_mib=32, timeout_seconds=1.5)
        store = open_store(config, f"s3://{bucket}/x")
        store.put_file("weights", part_file, sha256=content_sha256(part_file))


def test_a_server_that_says_nothing_is_given_up(bucket: str, s3_server) -> None:
    with Proxy(s3_server.port) as proxy:
        proxy.delay_seconds = 60
        config = storage_config(proxy.endpoint, bucket, timeout_seconds=0.3, retry_seconds=0.5)
        store = open_store(config, f"s3://{bucket}/x")
        with pytest.raises(StorageError, match=r"cannot be used .*timed out.*after trying for 0\.5 s"):
            store.read("LATEST")


@pytest.mark.parametrize("wrong", ["key", "secret"])
def test_wrong_credentials_are_named_and_never_shown(
    gateway: Gateway, bucket: str, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    name = "AWS_ACCESS_KEY_ID" if wrong == "key" else "AWS_SECRET_ACCESS_KEY"
    monkeypatch.setenv(name, "hunter2hunter2")
    store = open_store(storage_config(gateway.endpoint, bucket), f"s3://{bucket}/x")
    started = time.monotonic()
    with pytest.raises(StorageError, match="refused; check AWS_ACCESS_KEY_ID and AWS_SECRET") as refused:
        store.read("LATEST")
    assert time.monotonic() - started < 4, "a refusal is no reason to try again"
    assert "hunter2" not in str(refused.value)


def test_somebody_elses_bucket_is_refused(
    gateway: Gateway, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stranger = gateway.add_account("stranger")
    for name, value in environment(stranger).items():
        monkeypatch.setenv(name, value)
    store = open_store(storage_config(gateway.endpoint, bucket), f"s3://{bucket}/x")
    with pytest.raises(StorageError, match=r"credentials do not allow this; .* and the bucket's policy"):
        store.write("LATEST", b"x", replaces=None)


def test_a_missing_bucket_is_named(bucket: str, s3_server) -> None:
    store = open_store(
        storage_config(s3_server.endpoint, "nowhere-to-be-found"), "s3://nowhere-to-be-found/x"
    )
    with pytest.raises(StorageError, match="the bucket does not exist; create it, or correct storage"):
        store.write("LATEST", b"x", replaces=None)


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        ("400 Bad Request", "ExpiredToken", "the credentials have expired; renew AWS_ACCESS_KEY_ID and AWS_"),
        ("400 Bad Request", "AuthorizationHeaderMalformed", "not the bucket's; set storage.region"),
        ("400 Bad Request", "XMinioAdminBucketQuotaExceeded", "the quota is used up; raise it, or remove"),
        (
            "507 Insufficient Storage",
            "XMinioStorageFull",
            "the server's disks are full; add space, or remove",
        ),
        ("405 Method Not Allowed", "MethodNotAllowed", r"cannot be used (MethodNotAllowed, 'no\x9b31m');"),
    ],
)
def test_a_refusal_is_told_with_its_remedy_or_in_the_servers_words(
    bucket: str, s3_server, status: str, code: str, message: str
) -> None:
    body = f"<Error><Code>{code}</Code><Message>no&#x9b;31m</Message></Error>"
    with Proxy(s3_server.port) as proxy:
        proxy.answers = [http_answer(status, body)]
        store = open_store(storage_config(proxy.endpoint, bucket), f"s3://{bucket}/x")
        with pytest.raises(StorageError) as refused:
            store.write("LATEST", b"x", replaces=None)
    assert message in str(refused.value)


def test_a_used_up_quota_stops_the_run_and_the_last_checkpoint_stays(
    trainer: Trainer, gateway: Gateway, tmp_path: Path
) -> None:
    """Room for the objects of one checkpoint and a part of the second."""
    account = gateway.add_account("poor", max_objects=26)
    make_client(gateway.port, account).make_bucket("poor-bucket")
    config = storage_config(gateway.endpoint, "poor-bucket")
    status = trainer.run(tmp_path / "run", *overrides(config), environment=environment(account))
    assert status == 2
    last = trainer.log().strip().splitlines()[-1]
    assert "the quota is used up; raise it, or remove old checkpoints" in last
    names = [str(item.object_name) for item in
             make_client(gateway.port, account).list_objects("poor-bucket", recursive=True)]  # fmt: skip
    assert "runs/test/from-000001/LATEST" in names
    assert "runs/test/from-000001/step-000001/manifest.json" in names


def test_a_full_disk_stops_with_the_place_and_the_old_object_stays(tmp_path: Path) -> None:
    """The system refuses files of more than 1 MiB, as a full disk would."""
    store = open_store(StorageConfig(), tmp_path / "store")
    store.write("LATEST", b"old", replaces=None)
    tag = store.read("LATEST")
    assert tag is not None
    refusal = pytest.raises(StorageError, match=r"LATEST: cannot be used .*; free space")
    with no_file_beyond(MIB), refusal:
        store.write("LATEST", b"x" * (2 * MIB), replaces=tag.tag)
    assert store.read("LATEST") == tag
    assert store.keys("") == ["LATEST"]


def test_a_full_disk_under_a_download_is_named_at_once(
    bucket: str, s3_server, part_file: Path, tmp_path: Path
) -> None:
    """It is no fault of the server, which is not asked again."""
    store = open_store(storage_config(s3_server.endpoint, bucket, retry_seconds=60), f"s3://{bucket}/x")
    store.put_file("weights", part_file, sha256=content_sha256(part_file))
    refusal = pytest.raises(
        StorageError, match=r"back\.[0-9a-f]{8}\.partial: cannot be written .*; free space there"
    )
    with no_file_beyond(MIB), refusal:
        store.get_file("weights", tmp_path / "back", sha256=content_sha256(part_file))
    assert not list(tmp_path.glob("back*"))


def test_a_wrong_clock_is_named(gateway: Gateway, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine's clock is an hour late, for the client only."""
    import datetime

    import minio.time

    late = datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=1)
    monkeypatch.setattr(minio.time, "utcnow", lambda: late)
    store = open_store(storage_config(gateway.endpoint, bucket), f"s3://{bucket}/x")
    with pytest.raises(StorageError, match=r"clock and the server's differ too much; synchronise them"):
        store.read("LATEST")


def test_an_object_that_somebody_else_changed_is_noticed(
    bucket: str, s3_server, part_file: Path, tmp_path: Path
) -> None:
    config = storage_config(s3_server.endpoint, bucket)
    store = open_store(config, f"s3://{bucket}/x")
    store.put_file("weights", part_file, sha256=content_sha256(part_file))
    changed = bytearray(part_file.read_bytes())
    changed[9 * MIB] ^= 1
    (tmp_path / "changed").write_bytes(changed)
    make_client(s3_server.port, s3_server.account).fput_object(bucket, "x/weights", str(tmp_path / "changed"))
    with pytest.raises(DamagedObjectError, match="x/weights: changed since it was written"):
        store.get_file("weights", tmp_path / "back", sha256=content_sha256(part_file))
