"""A scripted chat server on a real socket."""

import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Reply = tuple[int, dict[str, str], str | bytes | Iterable[bytes]]
"""Status (0 closes the connection), headers, body; one in parts ends with the connection."""


class RateLimit:
    """A script behind a token bucket, as hosted servers have it: 429 beyond the rate."""

    def __init__(
        self,
        script: Callable[[int, dict[str, Any]], Reply],
        *,
        per_second: float,
        burst: float,
        headers: Mapping[str, str],
    ) -> None:
        """`headers` go with every refusal, e.g. `retry-after`."""
        self.num_refused = 0
        self._script, self._rate, self._burst, self._headers = script, per_second, burst, headers
        self._left, self._filled_at = burst, time.monotonic()
        self._lock = threading.Lock()

    def __call__(self, number: int, body: dict[str, Any]) -> Reply:
        with self._lock:
            now = time.monotonic()
            self._left = min(self._burst, self._left + self._rate * (now - self._filled_at))
            self._filled_at = now
            if self._left < 1:
                self.num_refused += 1
                return 429, dict(self._headers), "slow down"
            self._left -= 1
        return self._script(number, body)


class ScriptedServer:
    """Answers every request by `script(number, body)`; remembers what it was sent."""

    def __init__(self, script: Callable[[int, dict[str, Any]], Reply]) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.num_open = self.max_open = 0
        lock = threading.Lock()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                with lock:
                    number = len(server.bodies)
                    server.bodies.append(body)
                    server.headers.append({name.lower(): value for name, value in self.headers.items()})
                    server.num_open += 1
                    server.max_open = max(server.max_open, server.num_open)
                status, headers, text = script(number, body)
                with lock:
                    server.num_open -= 1
                if status == 0:
                    self.connection.close()
                    return
                self.send_response(status)
                if isinstance(text, str):
                    text = text.encode()
                if isinstance(text, bytes):
                    headers = {"content-length": str(len(text)), **headers}
                    text = [text]
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                for part in text:
                    self.wfile.write(part)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            request_queue_size = 128  # of five, connections of a busy client are reset

        self._http = Server(("127.0.0.1", 0), Handler)
        self._http.handle_error = lambda *_: None  # a client that timed out is part of the script
        self.url = f"http://127.0.0.1:{self._http.server_port}/v1"
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
