"""Serves the page of a run that goes on, to this machine alone.

One page at one address, made anew when a file has changed. A request under another host's name is refused: a
web site could otherwise have the browser read the page for it. `live.py` makes the page.
"""

from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock

from cooper_rl.errors import ConfigError
from cooper_rl.records.live import SUFFIX, files_named
from cooper_rl.report.live import check_folder, live_page
from cooper_rl.report.page import render

HOST = "127.0.0.1"
REFRESH_SECONDS = 5


class Watcher(ThreadingHTTPServer):
    """Answers until it is shut down.

    Args:
        folder: Of a run or an experiment; it may be empty yet.
        port: On 127.0.0.1; 0 takes a free one.

    Raises:
        ConfigError: the folder is absent, or the port is taken.
    """

    daemon_threads = True

    def __init__(self, folder: Path, *, port: int) -> None:
        check_folder(folder)
        self.folder = folder
        self._lock = Lock()
        self._made_of: object = None
        self._page = ""
        try:
            super().__init__((HOST, port), _Handler)
        except (OSError, OverflowError) as error:
            raise ConfigError(f"--port {port}: cannot be used ({error}); choose another one, or 0") from error

    @property
    def address(self) -> str:
        """The address for a browser."""
        return f"http://{HOST}:{self.server_port}/"

    def page(self) -> str:
        """The page by now; one for those who wait while no run has begun."""
        with self._lock:
            made_of = _fingerprint(self.folder)
            if made_of != self._made_of or not self._page:
                self._page = live_page(self.folder, refresh_seconds=REFRESH_SECONDS) or render(
                    "report/waiting.html.jinja", folder=str(self.folder), refresh_seconds=REFRESH_SECONDS
                )
                self._made_of = made_of
            return self._page


def _fingerprint(folder: Path) -> list[tuple[str, int, int]]:
    """A fingerprint of the files; when it changes, the page is made anew."""
    found: list[tuple[str, int, int]] = []
    for path in files_named(folder, f"*{SUFFIX}", "evaluations", "evaluations.jsonl", "LATEST"):
        try:
            state = path.stat()
        except OSError:
            continue
        found.append((str(path), state.st_mtime_ns, state.st_size))
    return found


class _Handler(BaseHTTPRequestHandler):
    server: Watcher  # pyright: ignore[reportIncompatibleVariableOverride] it is made by one

    def do_GET(self) -> None:
        """The page, under this machine's own name."""
        known = {f"{name}:{self.server.server_port}" for name in (HOST, "localhost")}
        if self.headers.get("Host") not in known:
            self.send_error(HTTPStatus.FORBIDDEN, f"ask as {HOST}")
        elif self.path != "/":
            self.send_error(HTTPStatus.NOT_FOUND)
        else:
            self._send(self.server.page().encode())

    def _send(self, content: bytes) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """A request every few seconds is no news."""
