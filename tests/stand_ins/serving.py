"""HTTP servers of tests, in a thread of their own."""

import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import HTTPServer


@contextmanager
def serving(server: HTTPServer) -> Generator[str]:
    """Answer requests for the length of the block. Gives the server's address."""
    # The time between two looks at whether to end is half a second by default, which every test would wait.
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def saying_nothing() -> Generator[str]:
    """A server that takes connections and never answers, for the length of the block. Gives its address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
