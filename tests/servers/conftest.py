"""Chat servers that answer as a test says."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.stand_ins.chat import Reply, ScriptedServer


@pytest.fixture
def serve_chat() -> Iterator[Callable[[Callable[[int, dict[str, Any]], Reply]], ScriptedServer]]:
    servers: list[ScriptedServer] = []

    def start(script: Callable[[int, dict[str, Any]], Reply]) -> ScriptedServer:
        servers.append(ScriptedServer(script))
        return servers[-1]

    yield start
    for server in servers:
        server.close()
