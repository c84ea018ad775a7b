"""Alerts, held to Prometheus's own promtool: every rule loads, and fires for numbers that call for it."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.manifests.test_overlays import MANIFESTS

CASES = Path(__file__).parent / "alerts.yaml"
PROMTOOL = shutil.which("promtool")

needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="promtool is not on PATH (Debian: prometheus)")


def groups() -> list[dict[str, Any]]:
    bodies = [
        body
        for path in sorted((MANIFESTS / "components" / "monitoring").rglob("*.yaml"))
        for body in yaml.safe_load_all(path.read_text(encoding="utf-8"))
    ]
    return [group for body in bodies if body["kind"] == "PrometheusRule" for group in body["spec"]["groups"]]


def promtool(*words: str, folder: Path) -> str:
    assert PROMTOOL is not None
    done = subprocess.run(
        [PROMTOOL, *words], cwd=folder, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The rules of every component, and the cases beside them."""
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": groups()}), encoding="utf-8")
    shutil.copy(CASES, tmp_path)
    return tmp_path


@needs_promtool
def test_every_rule_loads(folder: Path) -> None:
    found = sum(len(group["rules"]) for group in groups())
    assert f"{found} rules found" in promtool("check", "rules", "rules.yaml", folder=folder)


@needs_promtool
def test_alerts_fire_for_numbers_that_call_for_them(folder: Path) -> None:
    promtool("test", "rules", CASES.name, folder=folder)


def test_every_alert_is_provoked() -> None:
    text = CASES.read_text(encoding="utf-8")
    assert [rule["alert"] for group in groups() for rule in group["rules"] if rule["alert"] not in text] == []
