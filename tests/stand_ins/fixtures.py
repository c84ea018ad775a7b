"""Fixtures of tests that need an S3 server: the real gateway where it is installed, else moto's imitation."""

import hashlib
import io
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Generator
from pathlib import Path

import pytest
from minio import Minio

from cooper_rl.config.infrastructure import StorageConfig
from tests.stand_ins.radosgw import Account, Gateway, run_gateway, why_missing


class Moto:
    """Moto's server: keeps objects as S3 does, but takes any secret for right."""

    def __init__(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.account = Account("tests", "tests-secret")
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(300):
            with socket.socket() as attempt:
                if attempt.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.1)
        raise RuntimeError("moto's server does not start")

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@pytest.fixture(scope="session")
def gateway() -> Generator[Gateway]:
    """The real server, for what an imitation does not do."""
    reason = why_missing()
    if reason:
        pytest.skip(reason)
    with tempfile.TemporaryDirectory(prefix="rgw-") as folder, run_gateway(Path(folder)) as running:
        yield running


@pytest.fixture(scope="session")
def s3_server(request: pytest.FixtureRequest) -> Generator[Gateway | Moto]:
    """The real server, or an imitation where that is not installed."""
    if why_missing() is None:
        yield request.getfixturevalue("gateway")
        return
    pytest.importorskip("moto", reason="neither Ceph's gateway nor moto is installed")
    moto = Moto()
    yield moto
    moto.process.kill()
    moto.process.wait()


@pytest.fixture
def bucket(s3_server: Gateway | Moto, monkeypatch: pytest.MonkeyPatch) -> str:
    """A fresh bucket; its credentials stand in the environment."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3_server.account.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3_server.account.secret_key)
    name = f"test-{uuid.uuid4()}"
    make_client(s3_server.port, s3_server.account).make_bucket(name)
    return name


def make_client(port: int, account: Account) -> Minio:
    """The plain client, to look at the server behind the store's back."""
    return Minio(
        f"127.0.0.1:{port}", account.access_key, account.secret_key, secure=False, region="us-east-1"
    )


def storage_config(endpoint: str, bucket: str, **options: object) -> StorageConfig:
    """Small parts and little patience, as tests want it."""
    values = {"part_mib": 5, "timeout_seconds": 5, "retry_seconds": 5} | options
    return StorageConfig.model_validate(
        {"uri": f"s3://{bucket}/runs", "run_key": "test", "endpoint": endpoint} | values
    )


def send_folder(server: Gateway | Moto, bucket: str, prefix: str, folder: Path) -> None:
    client = make_client(server.port, server.account)
    for path in folder.rglob("*"):
        if path.is_file():
            client.fput_object(bucket, f"{prefix}/{path.relative_to(folder)}", str(path))


def send_model(server: Gateway | Moto, bucket: str, prefix: str, folder: Path) -> str:
    """Store a model with its SHA256SUMS, as docs/cluster/operations.md says; returns its address."""
    files = sorted(path for path in folder.rglob("[!.]*") if path.is_file())  # as `sha256sum *`
    lines = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(folder)}\n" for path in files
    ]
    send_folder(server, bucket, prefix, folder)
    sums = "".join(lines).encode()
    make_client(server.port, server.account).put_object(
        bucket, f"{prefix}/SHA256SUMS", io.BytesIO(sums), len(sums)
    )
    return f"s3://{bucket}/{prefix}"
