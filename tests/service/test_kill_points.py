"""SIGKILL anywhere: no request is lost, none is learned from twice, and no answer changes."""

import re
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.service.conftest import ROOT, Server
from tests.service.service_world import REQUESTS, Outcome, read_outcome

KILLS = [
    ("submit", 1), ("submit", 5), ("after submit", 3), ("after submit", 7),
    ("score", 1), ("score", 2), ("score", 6), ("after score", 3), ("after score", 5),
    ("append", 1), ("append", 4), ("append", 6), ("after append", 1), ("after append", 2), ("after append",
    5), ("torn", 1), ("torn", 3), ("torn", 5), ("torn", 7),
    ("finish", 1), ("finish", 5), ("after finish", 3), ("after finish", 4), ("after finish", 7),
    ("learn", 1), ("learn", 3), ("after learn", 2), ("after learn", 4),
    ("pairs", 2), ("update", 1), ("after update", 3), ("optimizer", 4),
    ("checkpoint", 1), ("checkpoint", 2), ("after checkpoint", 1), ("weights", 2), ("manifest", 2),
    ("store_write", 3), ("store_write", 6), ("store_flush", 4), ("store_flush", 9),
    ("compact", 1), ("compact", 2), ("after compact", 1), ("journal_folder", 2), ("after journal_folder", 3),
    ("open", 1), ("after open", 1), ("close", 1), ("after close", 1),
]  # fmt: skip
NUM_QUICK = 8
TWICE = [
    (("after append", 6), ("learn", 1)),
    (("checkpoint", 2), ("after learn", 1)),
    (("torn", 6), ("open", 1)),
    (("after learn", 3), ("optimizer", 1)),
]
"""Killed again while it takes the steps again."""


def points() -> Iterator[Any]:
    """All, evenly spread ones of them quick."""
    quick = {round(place * (len(KILLS) - 1) / (NUM_QUICK - 1)) for place in range(NUM_QUICK)}
    for place, (name, hit) in enumerate(KILLS):
        marks = [] if place in quick else pytest.mark.slow
        yield pytest.param([(name, hit)], id=f"{name}-{hit}", marks=marks)
    for kills in TWICE:
        yield pytest.param(list(kills), id="-".join(name for name, _ in kills), marks=pytest.mark.slow)


@pytest.fixture(scope="module")
def straight(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return talk(server, tmp_path_factory.mktemp("straight") / "state", [])


@pytest.mark.parametrize("kills", list(points()))
def test_a_killed_server_goes_on_as_if_nothing_had_happened(
    server: Server, straight: Outcome, tmp_path: Path, kills: list[tuple[str, int]]
) -> None:
    assert straight.metrics[-1]["step"] == 4
    assert talk(server, tmp_path / "state", kills) == straight


def test_the_documentation_lists_every_kill_point() -> None:
    page = (ROOT / "docs/lab/reliability.md").read_text(encoding="utf-8")
    section = page.partition("\n## Kill points of the reward service\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\|[^|]+\| `(\w+)` \|([^|]*)\|([^|]*)\|$", section, re.MULTILINE)
    listed = [
        (f"{prefix}{name}", int(hit))
        for name, before, after in rows
        for prefix, hits in (("", before), ("after ", after))
        for hit in re.findall(r"\d+", hits)
    ]
    assert Counter(listed) == Counter(KILLS)


def talk(server: Server, state: Path, kills: list[tuple[str, int]]) -> Outcome:
    """Every request until it is answered, then every one again, then SIGTERM; after a kill the next start."""
    left = [{"point": name, "hit": hit} for name, hit in kills]
    ended: list[int] = []

    def start() -> None:
        while not server.start(state, left.pop(0) if left else {}):
            ended.append(server.wait())

    def ask(body: dict[str, Any]) -> dict[str, Any]:
        while True:
            try:
                return server.post(body)
            except httpx.TransportError:
                ended.append(server.wait())
                start()

    start()
    answers = [ask(body) for body in REQUESTS]
    assert [ask(body) for body in REQUESTS] == answers
    while (status := server.stop()) != 0:
        ended.append(status)
        start()
    assert ended == [-signal.SIGKILL] * len(kills), Path(f"{state}.log").read_text()[-3000:]
    return read_outcome(state / "run", answers)
