"""A stub of MinIO's administration protocol, on a real socket: encrypted bodies, statuses and error codes.

MinIO's own server is in no package registry. The stub answers what `prepare_buckets` asks: add a policy, add
a user, attach one to the other. It checks no signatures and knows no other request.
"""

import io
import json
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

from minio.crypto import decrypt, encrypt
from urllib3 import HTTPResponse

from tests.stand_ins.serving import serving

ALREADY = "XMinioAdminPolicyChangeAlreadyApplied"


class AdminServer(ThreadingHTTPServer):
    """What was asked for, decrypted."""

    def __init__(self, secret_key: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.secret_key = secret_key
        self.policies: dict[str, Any] = {}
        self.users: dict[str, str] = {}
        self.attached: dict[str, list[str]] = {}
        self.is_refusing = False

    @property
    def netloc(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    def do_PUT(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def _answer(self) -> None:
        server = cast(AdminServer, self.server)
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        url = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        command = url.path.removeprefix("/minio/admin/v3/")
        if server.is_refusing:
            self._send(400, b'{"Code": "XMinioAdminNoSuchPolicy"}')
        elif command == "add-canned-policy":
            server.policies[query["name"]] = json.loads(body)
            self._send(200)
        elif command == "add-user":
            server.users[query["accessKey"]] = self._open(body)["secretKey"]
            self._send(200)
        elif command == "idp/builtin/policy/attach":
            wanted = self._open(body)
            if server.attached.get(wanted["user"]) == wanted["policies"]:
                self._send(400, json.dumps({"Code": ALREADY}).encode())
                return
            server.attached[wanted["user"]] = wanted["policies"]
            self._send(200, encrypt(b"{}", server.secret_key))
        else:
            self._send(404)

    def _open(self, body: bytes) -> dict[str, Any]:
        sealed = HTTPResponse(io.BytesIO(body), preload_content=False)
        return json.loads(decrypt(sealed, cast(AdminServer, self.server).secret_key))

    def _send(self, status: int, body: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""


@contextmanager
def run_admin_server(secret_key: str) -> Generator[AdminServer]:
    """The stub, on a free port."""
    server = AdminServer(secret_key)
    with serving(server):
        yield server
