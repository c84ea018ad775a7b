"""A judge's server as a process of its own, which logs what it is asked."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

JUDGE_SERVER = """
import json, os, re, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        user = body["messages"][1]["content"]
        nonce = re.search(r"<solution-([0-9a-f]+)>", user)[1]
        reference = re.search(rf"<reference-answer-{nonce}>\\n(.*)\\n<", user)[1]
        solution = re.search(rf"<solution-{nonce}>\\n(.*)\\n<", user)[1]
        with open(sys.argv[1], "a") as log:
            log.write(user.split(">", 1)[1].split("<")[0].strip() + solution + "\\n")
        word = "CORRECT" if re.findall(r"[0-9]+", solution)[-1:] == [reference] else "INCORRECT"
        text = json.dumps({"choices": [{"message": {"content": f"VERDICT-{nonce}: {word}"}}]})
        self.send_response(200)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *args):
        pass

server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"""


@pytest.fixture
def judge_server(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A chat server in its own process, and the file where it writes down every question it was asked."""
    log = tmp_path / "asked.log"
    with subprocess.Popen(
        [sys.executable, "-c", JUDGE_SERVER, str(log)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}/v1", log
        process.kill()
