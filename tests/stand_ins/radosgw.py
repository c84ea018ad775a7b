"""A real S3 server for the tests: Ceph's RADOS gateway with one monitor and one storage daemon, in memory.

Debian: apt-get install --no-install-recommends ceph-mon ceph-osd radosgw ceph-common. Starts in seconds,
in a folder of its own, on free ports, and ends with its context.
"""

import datetime
import json
import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

PROGRAMS = ("ceph-mon", "ceph-osd", "radosgw", "radosgw-admin", "ceph", "ceph-authtool", "monmaptool")
CERTIFICATE = "tls.pem"
PRIVATE_KEY = "tls.key"
START_SECONDS = 60.0
ENVIRONMENT = os.environ | {"CEPH_ARGS": ""}


@dataclass(frozen=True)
class Account:
    """Who may use the server."""

    access_key: str
    secret_key: str


@dataclass
class Gateway:
    """A running server."""

    folder: Path
    port: int
    tls_port: int
    account: Account
    process: subprocess.Popen[bytes]

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def tls_endpoint(self) -> str:
        """The same server; `ca_bundle` alone vouches for it."""
        return f"https://localhost:{self.tls_port}"

    @property
    def ca_bundle(self) -> Path:
        return self.folder / CERTIFICATE

    def stop(self) -> None:
        """The gateway alone ends; what it stored stays."""
        self.process.kill()
        self.process.wait()

    def start(self) -> None:
        """The gateway again, on the same port."""
        self.process = _start_gateway(self.folder, self.port, self.tls_port)

    def add_account(self, name: str, *, max_objects: int | None = None) -> Account:
        """Another user, with a quota on each of its buckets or without."""
        account = _add_account(self.folder, name)
        if max_objects is not None:
            quota = ["--quota-scope=bucket", f"--uid={name}"]
            _admin(self.folder, "quota", "set", *quota, f"--max-objects={max_objects}")
            _admin(self.folder, "quota", "enable", *quota)
        return account


def why_missing() -> str | None:
    """What keeps the server from being started on this machine, or None."""
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing:
        return f"{missing[0]} is not installed (Debian: ceph-mon ceph-osd radosgw ceph-common)"
    return None


@contextmanager
def run_gateway(folder: Path, *, memory_mb: int = 4000) -> Generator[Gateway]:
    """Start everything in `folder`, which must have a short path, and stop it in the end.

    Objects live in `memory_mb` of memory; what is removed makes room only after a while.
    """
    folder.mkdir(parents=True, exist_ok=True)
    ports = _free_ports(3)
    _write_config(folder, monitor_port=ports[0], memory_mb=memory_mb)
    processes: list[subprocess.Popen[bytes]] = []
    try:
        account = _start_store(folder, processes)
        _write_certificate(folder)
        gateway = Gateway(folder, *ports[1:], account, _start_gateway(folder, *ports[1:]))
        try:
            yield gateway
        finally:
            processes.append(gateway.process)
    finally:
        for process in reversed(processes):
            process.kill()
            process.wait()


def _start_store(folder: Path, processes: list[subprocess.Popen[bytes]]) -> Account:
    """Start monitor and storage, which are added to the processes."""
    try:
        _prepare_monitor(folder)
        processes.append(_start(folder, "ceph-mon", "-f", "-i", "a"))
        _prepare_storage(folder)
        processes.append(_start(folder, "ceph-osd", "-f", "-i", "0"))
        _call(folder, "ceph", "auth", "get-or-create", "client.rgw", "mon", "allow rwx", "osd", "allow rwx",
              "-o", str(folder / "rgw.keyring"))  # fmt: skip
        return _add_account(folder, "cooper")
    except subprocess.TimeoutExpired as error:
        # A client waits for a server that has ended, and does not say so.
        ended = [f"{process.args} ended with {process.poll()}" for process in processes if process.poll()]
        raise RuntimeError(f"{error}; {ended or 'no server has ended'}") from error


def _write_config(folder: Path, *, monitor_port: int, memory_mb: int) -> None:
    """The collector looks every second through its lists of what was removed: two of them, not 32."""
    text = f"""
[global]
fsid = {uuid.uuid4()}
mon host = [v2:127.0.0.1:{monitor_port}]
mon initial members = a
auth cluster required = cephx
auth service required = cephx
auth client required = cephx
keyring = {folder}/admin.keyring
run dir = {folder}
admin socket = {folder}/$name.asok
log file = {folder}/$name.log
log to stderr = false
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 8
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
mon allow pool size one = true
mon warn on pool no redundancy = false
# A percentage of the whole disk, at which the monitor ends without a word: a share of a machine's disk may
# have less.
mon data avail crit = -1
mon data avail warn = -1
paxos propose interval = 0.02
paxos min wait = 0.01
mon tick interval = 1
public addr = 127.0.0.1
ms bind ipv4 = true
[mon.a]
mon data = {folder}/mon
keyring = {folder}/mon/keyring
[osd.0]
osd data = {folder}/osd
osd objectstore = memstore
memstore device bytes = {memory_mb * 1_000_000}
keyring = {folder}/osd/keyring
[client.rgw]
keyring = {folder}/rgw.keyring
rgw data = {folder}/rgw
rgw dns name = localhost
rgw enable usage log = false
rgw bucket quota ttl = 0
rgw gc max objs = 2
rgw gc obj min wait = 1
rgw gc processor period = 1
rgw user quota bucket sync interval = 1
"""
    (folder / "ceph.conf").write_text(text, encoding="utf-8")


def _prepare_monitor(folder: Path) -> None:
    keys, admin = folder / "mon.keyring", folder / "admin.keyring"
    _run("ceph-authtool", "--create-keyring", keys, "--gen-key", "-n", "mon.", "--cap", "mon", "allow *")
    _run("ceph-authtool", "--create-keyring", admin, "--gen-key", "-n", "client.admin",
         "--cap", "mon", "allow *", "--cap", "osd", "allow *", "--cap", "mgr", "allow *")  # fmt: skip
    _run("ceph-authtool", keys, "--import-keyring", admin)
    config = (folder / "ceph.conf").read_text(encoding="utf-8")
    values = dict(line.split(" = ", 1) for line in config.splitlines() if " = " in line)
    _run("monmaptool", "--create", "--addv", "a", values["mon host"], "--fsid", values["fsid"],
         "--set-min-mon-release", "16", folder / "monmap")  # fmt: skip
    (folder / "mon").mkdir()
    _run("ceph-mon", "-c", folder / "ceph.conf", "--mkfs", "-i", "a", "--monmap", folder / "monmap",
         "--keyring", keys)  # fmt: skip


def _prepare_storage(folder: Path) -> None:
    (folder / "osd").mkdir()
    _run("ceph-authtool", "--create-keyring", folder / "osd" / "keyring", "--gen-key", "-n", "osd.0",
         "--cap", "mon", "allow profile osd", "--cap", "osd", "allow *")  # fmt: skip
    identity = str(uuid.uuid4())
    _call(folder, "ceph", "osd", "new", identity, "0", "-i", "-", text="{}")
    _call(folder, "ceph", "auth", "import", "-i", str(folder / "osd" / "keyring"))
    _run("ceph-osd", "-c", folder / "ceph.conf", "-i", "0", "--mkfs", "--osd-uuid", identity)


def _write_certificate(folder: Path) -> None:
    """For localhost, signed by nobody else; the programs of Ceph bring openssl's library, not its command."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        .serial_number(1).not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    (folder / CERTIFICATE).write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    plain = serialization.NoEncryption()
    text = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    (folder / PRIVATE_KEY).write_bytes(text)


def _start_gateway(folder: Path, port: int, tls_port: int) -> subprocess.Popen[bytes]:
    frontend = (
        f"beast endpoint=127.0.0.1:{port} tcp_nodelay=1 ssl_endpoint=127.0.0.1:{tls_port} "
        f"ssl_certificate={folder / CERTIFICATE} ssl_private_key={folder / PRIVATE_KEY}"
    )
    process = _start(folder, "radosgw", "-f", "-n", "client.rgw", f"--rgw-frontends={frontend}")
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}", timeout=1):
                return process
        except urllib.error.HTTPError:
            return process
        except OSError as error:
            if process.poll() is not None or time.monotonic() > deadline:
                log = (folder / "client.rgw.log").read_text(errors="replace")[-2000:]
                raise RuntimeError(f"radosgw does not answer on port {port}: {log}") from error
            time.sleep(0.05)


def _add_account(folder: Path, name: str) -> Account:
    answer = _admin(folder, "user", "create", f"--uid={name}", f"--display-name={name}")
    key = json.loads(answer)["keys"][0]
    return Account(key["access_key"], key["secret_key"])


def _admin(folder: Path, *arguments: str) -> str:
    return _call(folder, "radosgw-admin", "-n", "client.rgw", *arguments)


def _start(folder: Path, program: str, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [program, "-c", str(folder / "ceph.conf"), *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=(folder / f"{program}.err").open("ab"),
        env=ENVIRONMENT,
    )


def _call(folder: Path, program: str, *arguments: str, text: str | None = None) -> str:
    return _run(program, "-c", str(folder / "ceph.conf"), *arguments, text=text)


def _run(*command: object, text: str | None = None) -> str:
    words: Sequence[str] = [str(word) for word in command]
    done = subprocess.run(
        words, input=text or "", capture_output=True, text=True, timeout=START_SECONDS, env=ENVIRONMENT
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: exit {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports
