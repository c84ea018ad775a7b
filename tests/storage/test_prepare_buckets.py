"""Buckets on a real S3 server, users on a stub of MinIO's administration, both from the shipped plan."""

import json
import shutil
import uuid
from pathlib import Path

import pytest
from minio import MinioAdmin
from minio.commonconfig import ENABLED, Filter
from minio.credentials.providers import StaticProvider
from minio.error import MinioAdminException
from minio.lifecycleconfig import Expiration, LifecycleConfig, Rule

from cooper_rl.errors import ConfigError
from cooper_rl.storage import buckets
from cooper_rl.storage.buckets import Bucket, Plan, main, prepare_buckets, prepare_users, read_plan
from tests.stand_ins.fixtures import make_client
from tests.stand_ins.minio_admin import run_admin_server
from tests.stand_ins.serving import saying_nothing

STORAGE = Path(__file__).parent.parent.parent / "manifests" / "base" / "storage"
PLAN = read_plan(STORAGE / "buckets.json")
ROOT_SECRET = "root-secret"


def write_credentials(folder: Path, access_key: str, secret_key: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "access_key").write_text(access_key)
    (folder / "secret_key").write_text(secret_key)
    return folder


@pytest.fixture
def credentials(tmp_path: Path) -> Path:
    """What the manifests mount: a folder for each user of the shipped plan."""
    for user in PLAN.users:
        write_credentials(tmp_path / "credentials" / user, f"{user}-key", f"{user}-secret")
    return tmp_path / "credentials"


def test_buckets_get_versions_and_their_expiry(s3_server) -> None:
    """The shipped plan, with names of its own so that tests do not meet; twice, as an upgrade would."""
    mark = uuid.uuid4().hex[:8]
    plan = Plan(
        buckets=[bucket.model_copy(update={"name": f"{bucket.name}-{mark}"}) for bucket in PLAN.buckets],
        users=[],
    )
    client = make_client(s3_server.port, s3_server.account)
    for _ in range(2):
        prepare_buckets(client, plan)
    for bucket in plan.buckets:
        assert client.get_bucket_versioning(bucket.name).status == "Enabled"
        lifecycle = client.get_bucket_lifecycle(bucket.name)
        assert lifecycle is not None
        found = {
            (
                (rule.rule_filter and rule.rule_filter.prefix) or ""
            ): rule.noncurrent_version_expiration.noncurrent_days
            for rule in lifecycle.rules
        }
        assert found == bucket.keep_replaced_days


def test_a_lifecycle_rule_that_an_administrator_added_stays(s3_server) -> None:
    """Logs that end after a while: each upgrade runs the command again. A rule of an earlier plan goes."""
    name = f"test-{uuid.uuid4()}"
    client = make_client(s3_server.port, s3_server.account)
    prepare_buckets(client, Plan(buckets=[Bucket(name=name, keep_replaced_days={"old/": 3})], users=[]))
    present = client.get_bucket_lifecycle(name)
    assert present is not None
    logs = Rule(ENABLED, rule_filter=Filter(prefix="logs/"), rule_id="logs", expiration=Expiration(days=60))
    client.set_bucket_lifecycle(name, LifecycleConfig([*present.rules, logs]))
    plan = Plan(buckets=[Bucket(name=name, keep_replaced_days={"": 7})], users=[])
    for _ in range(2):
        prepare_buckets(client, plan)
    kept = client.get_bucket_lifecycle(name)
    assert kept is not None
    found = {rule.rule_id: rule for rule in kept.rules}
    assert found.keys() == {"replaced-all", "logs"}
    ended = found["logs"].expiration
    assert ended is not None
    assert (found["logs"].rule_filter and found["logs"].rule_filter.prefix, ended.days) == ("logs/", 60)
    unfinished = found["replaced-all"].abort_incomplete_multipart_upload
    assert unfinished is not None
    assert unfinished.days_after_initiation == 7


def test_users_get_their_credentials_and_exactly_their_rights(credentials: Path) -> None:
    with run_admin_server(ROOT_SECRET) as server:
        admin = MinioAdmin(
            endpoint=server.netloc,
            credentials=StaticProvider("root", ROOT_SECRET),
            secure=False,
            region="us-east-1",
        )
        for _ in range(2):  # the second time everything is there already
            prepare_users(admin, PLAN, policies=STORAGE / "policies", credentials=credentials)
    assert server.users == {f"{user}-key": f"{user}-secret" for user in ("kfp", "train", "serve")}
    assert server.attached == {f"{user}-key": [f"cooper-rl-{user}"] for user in PLAN.users}
    assert server.policies["cooper-rl-train"] == json.loads((STORAGE / "policies" / "train.json").read_text())


def test_another_refusal_of_the_server_is_not_swallowed(credentials: Path) -> None:
    with run_admin_server(ROOT_SECRET) as server:
        server.is_refusing = True
        admin = MinioAdmin(
            endpoint=server.netloc,
            credentials=StaticProvider("root", ROOT_SECRET),
            secure=False,
            region="us-east-1",
        )
        with pytest.raises(MinioAdminException, match="XMinioAdminNoSuchPolicy"):
            prepare_users(admin, PLAN, policies=STORAGE / "policies", credentials=credentials)


def test_the_command_makes_the_buckets_of_another_store(s3_server, tmp_path: Path) -> None:
    name = f"test-{uuid.uuid4()}"
    plan = tmp_path / "plan.json"
    plan.write_text(Plan(buckets=[Bucket(name=name, keep_replaced_days={"": 1})], users=[]).model_dump_json())
    account = s3_server.account
    root = write_credentials(tmp_path / "root", account.access_key, account.secret_key)
    arguments = [f"--plan={plan}", f"--endpoint={s3_server.endpoint}", f"--administrator={root}"]
    assert main([*arguments, "--no-users"]) == 0
    assert make_client(s3_server.port, account).bucket_exists(name)


@pytest.mark.parametrize(
    ("endpoint", "plan", "message"),
    [
        (
            "http://127.0.0.1:9",
            '{"buckets": [{"name": "abc", "keep_replaced_days": {}}], "users": []}',
            "check",
        ),
        ("minio:9000", '{"buckets": [], "users": []}', "--endpoint=minio:9000: give http"),
        ("http://[::1", '{"buckets": [], "users": []}', "--endpoint=http://[::1: give http"),
        ("http://127.0.0.1:9", '{"bucket": []}', "not a plan of buckets and users"),
        ("http://127.0.0.1:9", '{"buckets": [], "users": ["kfp"]}', r"kfp.json: not a user's rights as JSON"),
    ],
)
def test_the_command_ends_with_an_error_that_names_the_place(
    endpoint: str, plan: str, message: str, tmp_path: Path, credentials: Path, capsys, monkeypatch
) -> None:
    # The client tries again, each time after a longer pause, before it says that nobody answers.
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    (tmp_path / "plan.json").write_text(plan)
    root = write_credentials(tmp_path / "root", "root", ROOT_SECRET)
    arguments = [f"--plan={tmp_path / 'plan.json'}", f"--endpoint={endpoint}", f"--administrator={root}"]
    assert main([*arguments, f"--users={credentials}"]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert ROOT_SECRET not in error


def test_a_plan_is_read_from_what_kustomize_mounts(tmp_path: Path) -> None:
    """The generator puts plan and rights side by side."""
    for path in (STORAGE / "buckets.json", *(STORAGE / "policies").glob("*.json")):
        shutil.copy(path, tmp_path)
    assert all((tmp_path / f"{user}.json").is_file() for user in read_plan(tmp_path / "buckets.json").users)


def test_a_missing_plan_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.json: not a plan"):
        read_plan(tmp_path / "none.json")


@pytest.mark.usefixtures("impatient")
def test_a_server_that_says_nothing_is_named_and_given_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys, monkeypatch
) -> None:
    """MinIO's client would wait for half an hour."""
    monkeypatch.setattr(buckets, "SILENCE_SECONDS", 0.3)
    (tmp_path / "plan.json").write_text(
        '{"buckets": [{"name": "abc", "keep_replaced_days": {}}], "users": []}'
    )
    root = write_credentials(tmp_path / "root", "root", ROOT_SECRET)
    with saying_nothing() as url:
        arguments = [f"--plan={tmp_path / 'plan.json'}", f"--endpoint={url}", f"--administrator={root}"]
        assert main([*arguments, "--no-users"]) == 2
    assert "Read timed out" in capsys.readouterr().err
    assert f"{url}: no good answer for 0 s; waiting (3 tries of 0.3 s)" in caplog.text
