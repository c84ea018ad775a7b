"""The board and the alerts: every number that they ask for is one that a server gives."""

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from fastapi import FastAPI
from prometheus_client.parser import text_string_to_metric_families

from cooper_rl.config.load import load_learn
from cooper_rl.config.serve import ServeConfig
from cooper_rl.models.verify_rm import save_verify_rm
from cooper_rl.servers import verify_rm_http
from cooper_rl.service import http
from manifests.check.__main__ import check
from manifests.check.references import read_expected
from tests.manifests.test_overlays import MANIFESTS, find, kustomize
from tests.service.service_world import SETTINGS, start_of

ROOT = Path(__file__).parent.parent.parent
MONITORING = MANIFESTS / "components" / "monitoring"
BOARD: dict[str, Any] = json.loads((MONITORING / "grafana/board.json").read_text(encoding="utf-8"))
SUFFIXES = {
    "gauge": ("",),
    "counter": ("_total",),
    "histogram": ("_bucket", "_sum", "_count"),
}
WORDS = {"histogram_quantile", "rate", "sum", "min", "max", "by", "or", "and"}
"""What expressions hold of PromQL beside names of numbers."""


def expressions() -> Iterator[tuple[str, str]]:
    """Panel or alert -> what it asks for."""
    for panel in BOARD["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]
    for variable in BOARD["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["name"], re.sub(r"label_values\((\w+), \w+\)", r"\1", variable["query"]["query"])
    for path in sorted(MONITORING.rglob("*.yaml")):
        for body in yaml.safe_load_all(path.read_text(encoding="utf-8")):
            if body["kind"] == "PrometheusRule":
                for rule in body["spec"]["groups"][0]["rules"]:
                    yield rule["alert"], rule["expr"]


def numbers_in(expression: str) -> set[str]:
    """Names of numbers: words that are neither labels, values, durations nor PromQL's own."""
    bare = re.sub(r'"[^"]*"|\{[^}]*\}|\[[^\]]*\]|\bby \([^)]*\)', " ", expression)
    return set(re.findall(r"[A-Za-z_][\w:]*", bare)) - WORDS


async def scrape(app: FastAPI) -> str:
    transport = httpx.ASGITransport(app=app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://server") as client,
    ):
        return (await client.get("/metrics")).text


@pytest.fixture(scope="module")
def served(make_verify_rm, tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Names that our two servers give, scraped from both."""
    folder = tmp_path_factory.mktemp("board")
    save_verify_rm(make_verify_rm(0), folder / "verify_rm")
    apps = [
        verify_rm_http.make_app(make_verify_rm(0), ServeConfig(), name="rm"),
        http.make_app(start_of(folder / "verify_rm", folder / "state"), load_learn(SETTINGS)),
    ]
    families = [family for app in apps for family in text_string_to_metric_families(asyncio.run(scrape(app)))]
    return {
        family.name + suffix
        for family in families
        if not family.name.endswith("_created")
        for suffix in SUFFIXES[family.type]
    }


def test_every_number_is_served_by_us_or_named_in_the_documentation(served: set[str]) -> None:
    """Those of MinIO, Kueue, vLLM and Prometheus itself are listed in operations.md."""
    page = (ROOT / "docs/cluster/operations.md").read_text(encoding="utf-8")
    others = {name for name in re.findall(r"`([\w:]+)`", page) if not name.startswith(("cooper_", "verify_"))}
    unknown = {
        (place, name)
        for place, expression in expressions()
        for name in numbers_in(expression) - served - others
    }
    assert unknown == set()


def test_a_number_that_is_not_served_is_found(served: set[str]) -> None:
    wrong = 'sum by (run) (rate(cooper_reward_alarm_total{run=~"a"}[5m])) / verify_rm_items'
    assert numbers_in(wrong) - served == {"cooper_reward_alarm_total", "verify_rm_items"}


def test_the_board_shows_every_number_of_a_run(served: set[str]) -> None:
    """What an operator sees of hacking, of steps, of the queue and of requests, of both servers."""
    shown = {name for _, expression in expressions() for name in numbers_in(expression)}
    of_runs = {name for name in served if name.startswith("cooper_reward_")}
    halves = {name for name in of_runs if name.endswith(("_sum", "_bucket", "_count"))}
    assert of_runs - halves <= shown
    assert {"cooper_reward_learn_seconds_bucket", "verify_rm_request_seconds_bucket"} <= shown
    assert {"verify_rm_requests_total", "verify_rm_waiting_items", "verify_rm_rejected_total"} <= shown


def test_panels_have_places_of_their_own() -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in BOARD["panels"]:
        place = panel["gridPos"]
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert x < 24
                assert taken.setdefault((x, y), panel["title"]) == panel["title"]
    ids = [panel["id"] for panel in BOARD["panels"]]
    assert len(ids) == len(set(ids))


def test_grafana_finds_the_board_by_its_label(tmp_path: Path) -> None:
    overlay = MANIFESTS / "overlays" / "rewards"
    parts = [MONITORING / name for name in ("servers", "rewards", "grafana")]
    resources = kustomize(tmp_path, resources=[overlay], components=parts)
    assert check(resources, read_expected(overlay)) == []
    board = find(resources, "ConfigMap", "grafana-board")
    assert board.namespace == "cooper-rl"
    assert board.body["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert json.loads(board.body["data"]["cooper-rl.json"]) == BOARD


def test_alerts_name_rows_of_the_runbook_that_are_there() -> None:
    """Numbers of rows move when a row is added; an alert names the words that its row begins with."""
    page = (ROOT / "docs/cluster/operations.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \d+\. (.*)$", page.partition("\n## Runbook\n")[2], flags=re.MULTILINE)
    named = []
    for path in sorted(MONITORING.rglob("*.yaml")):
        text = path.read_text(encoding="utf-8")
        named += re.findall(r'docs/cluster/operations\.md, runbook, "([^"]+)"', text)
        assert not re.search(r"runbook, rows? \d", text)
    assert len(named) >= 2
    for words in named:
        assert sum(row.startswith(words) for row in rows) == 1, words


def test_hacking_wakes_somebody() -> None:
    (expression,) = (expression for name, expression in expressions() if name == "RewardsHacked")
    assert expression == "max by (namespace, run) (cooper_reward_alarms_total) > 0"
