"""A real browser without a window, driven over its debugging protocol, as far as the pages' tests need it."""

import itertools
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
SECONDS = 60
IS_PROMISED = bool(os.environ.get("COOPER_HAS_BROWSER"))
"""Set by CI after it has installed a browser: tests that do not find it fail, where they would be skipped."""
IS_DRIVEN = find_spec("websocket") is not None
needs_browser = pytest.mark.skipif(
    not IS_PROMISED and (CHROMIUM is None or not IS_DRIVEN),
    reason="no browser (apt-get install chromium), or no websocket-client, which drives it",
)


class Browser:
    """One tab."""

    def __init__(self, port: int) -> None:
        import websocket

        with urlopen(f"http://127.0.0.1:{port}/json/list", timeout=SECONDS) as answer:
            tab = next(each for each in json.load(answer) if each["type"] == "page")
        self._socket = websocket.create_connection(
            tab["webSocketDebuggerUrl"], timeout=SECONDS, suppress_origin=True
        )
        self._numbers = itertools.count(1)
        self.problems: list[str] = []
        """What the browser complained of: errors of a script, and what its policy refused."""
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self._numbers)
        self._socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._socket.recv())
            if message.get("method") == "Runtime.exceptionThrown":
                self.problems.append(json.dumps(message["params"]["exceptionDetails"]))
            if message.get("method") == "Log.entryAdded":
                self.problems.append(message["params"]["entry"]["text"])
            if message.get("id") == number:
                assert "error" not in message, message
                return message["result"]

    def open(self, address: str, *, width: int, runs_scripts: bool = True) -> None:
        self.problems.clear()
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=True
        )
        self.call("Emulation.setScriptExecutionDisabled", value=not runs_scripts)
        self.call("Page.navigate", url=address)
        deadline = time.monotonic() + SECONDS
        while self.value("document.readyState + location.href") != f"complete{address}":
            assert time.monotonic() < deadline, f"{address} does not load"
            time.sleep(0.05)

    def value(self, expression: str) -> Any:
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def mouse(self, kind: str, x: float, y: float) -> None:
        buttons = 0 if kind == "Moved" else 1
        self.call(
            "Input.dispatchMouseEvent", type=f"mouse{kind}", x=x, y=y, button="left" if buttons else "none",
            buttons=buttons, clickCount=buttons,
        )  # fmt: skip


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """A fresh one, with its profile in the folder."""
    assert CHROMIUM is not None, "no chromium, chromium-browser or google-chrome on the PATH"
    quiet = ("no-sandbox", "disable-gpu", "no-first-run", "disable-background-networking")
    options = [f"--{name}" for name in ("headless", *quiet, "disable-component-update", "disable-sync")]
    process = subprocess.Popen(
        [CHROMIUM, *options, "--remote-debugging-port=0", f"--user-data-dir={folder}", "about:blank"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        place, deadline = folder / "DevToolsActivePort", time.monotonic() + SECONDS
        while not (place.is_file() and place.read_text().count("\n")):
            assert process.poll() is None, "the browser ended"
            assert time.monotonic() < deadline, "the browser does not start"
            time.sleep(0.05)
        yield Browser(int(place.read_text().splitlines()[0]))
    finally:
        process.terminate()
        process.wait(SECONDS)
