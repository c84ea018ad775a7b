"""A server that speaks KFP's REST API, and an environment without another."""

from collections.abc import Generator
from pathlib import Path

import pytest

from tests.stand_ins.kfp_api import KfpApi, run_kfp_api


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Generator[KfpApi]:
    monkeypatch.setenv("HOME", str(tmp_path))  # kfp reads and writes ~/.config/kfp
    monkeypatch.setattr("kfp.Client._LOCAL_KFP_CONTEXT", str(tmp_path / "context.json"))
    for name in ("KFP_TOKEN", "KF_PIPELINES_ENDPOINT", "KF_PIPELINES_UI_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    with run_kfp_api(KfpApi()) as running:
        yield running
