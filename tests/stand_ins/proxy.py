"""A TCP proxy between a client and a server that makes the network misbehave as a test asks."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

CHUNK = 65536


class Proxy:
    """Forwards bytes to a port on this machine; every fault can be set and lifted while it runs."""

    def __init__(self, port: int) -> None:
        self.refuse = False
        """Close every connection at once, open ones too."""
        self.delay_seconds = 0.0
        """Before every piece that the client sends."""
        self.answers: list[bytes] = []
        """Raw answers that are given instead of asking the server, one per connection."""
        self.cut_after: list[int] = []
        """Cut a connection, one per entry, after the client has sent so many bytes."""
        self.cut_answer_after: list[int] = []
        """Cut a connection, one per entry, after the server has sent so many bytes."""
        self.num_connections = 0
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        self.num_connections += 1
        if self.refuse:
            client.close()
            return
        if self.answers:
            self._answer(client, self.answers.pop(0))
            return
        with socket.create_connection(("127.0.0.1", self._target)) as server:
            limit = self.cut_after.pop(0) if self.cut_after else None
            back_limit = self.cut_answer_after.pop(0) if self.cut_answer_after else None
            back = threading.Thread(
                target=_pump, args=(server, client, back_limit, lambda: None, lambda: self.refuse)
            )
            back.start()
            _pump(client, server, limit, lambda: time.sleep(self.delay_seconds), lambda: self.refuse)
            back.join()

    def _answer(self, client: socket.socket, answer: bytes) -> None:
        """Read one whole request, then answer it."""
        data = b""
        while b"\r\n\r\n" not in data:
            data += client.recv(CHUNK)
        head, _, body = data.partition(b"\r\n\r\n")
        lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        missing = (int(lengths[0].split(b":")[1]) if lengths else 0) - len(body)
        while missing > 0:
            missing -= len(client.recv(CHUNK))
        client.sendall(answer)
        client.close()


def http_answer(status: str, body: str = "") -> bytes:
    """An answer, after which the connection is closed."""
    kind = "Content-Type: application/xml\r\n" if body else ""
    return (
        f"HTTP/1.1 {status}\r\n{kind}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}".encode()
    )


def _pump(
    source: socket.socket,
    target: socket.socket,
    limit: int | None,
    pause: Callable[[], None],
    is_refused: Callable[[], bool],
) -> None:
    passed = 0
    try:
        while data := source.recv(CHUNK):
            pause()
            passed += len(data)
            if is_refused() or (limit is not None and passed > limit):
                break
            target.sendall(data)
    except OSError:
        pass
    for end in (source, target):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
