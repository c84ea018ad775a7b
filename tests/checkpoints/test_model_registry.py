"""Champions in MLflow's model registry: a real one on SQLite where MLflow is there, else a warning."""

import logging
import os
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from cooper_rl.checkpoints.model_registry import open_mlflow, register_champion
from cooper_rl.config.infrastructure import RegistryConfig
from cooper_rl.schema.reports import Interval
from cooper_rl.schema.runs import PromoteReport
from tests.stand_ins.serving import saying_nothing

PLACE = "s3://cooper-rl/registry"
real = pytest.mark.skipif(
    any(find_spec(name) is None for name in ("mlflow", "sqlalchemy", "alembic")),
    reason="needs mlflow-skinny, sqlalchemy and alembic",
)


def decision(name: str, champion: str | None = None, accuracy: float = 0.5) -> PromoteReport:
    interval = Interval(value=accuracy, low=0, high=1, count=8)
    return PromoteReport(
        is_promoted=True,
        candidate=name,
        champion=champion,
        accuracy_name="rule accuracy",
        accuracy=interval,
        champion_accuracy=None,
        accuracy_change=None,
        verify_rm_accuracy=interval,
        champion_verify_rm_accuracy=None,
        verify_rm_accuracy_change=None,
        canary_false_positive_rate=None,
        max_canary_rate=0.2,
        reasons=["Better."],
    )


def register(
    config: RegistryConfig, name: str, champion: str | None = None, run: str | None = "monday"
) -> bool:
    return register_champion(config, decision(name, champion), place=PLACE, run_key=run)


@real
def test_each_champion_is_a_version_once_and_the_alias_names_the_last(tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path / 'mlflow.db'}"
    config = RegistryConfig(mlflow=address, mlflow_model="mine")
    assert register(config, "v-1")
    assert register(config, "v-2", "v-1", run=None)
    assert register(config, "v-2", "v-1", run=None), "a task that is tried again"
    client: Any = import_module("mlflow.tracking").MlflowClient(tracking_uri=address, registry_uri=address)
    first, second = sorted(client.search_model_versions("name = 'mine'"), key=lambda each: int(each.version))
    assert (first.source, second.source) == (f"{PLACE}/v-1", f"{PLACE}/v-2")
    assert first.tags == {
        "cooper_rl.version": "v-1",
        "cooper_rl.run": "monday",
        "cooper_rl.rule_accuracy": "0.5000",
        "cooper_rl.verify_rm_accuracy": "0.5000",
    }
    assert second.tags["cooper_rl.previous"] == "v-1"
    assert second.description == "Better."
    assert client.get_model_version_by_alias("mine", "champion").version == second.version
    assert register(config, "v-1"), "a way back"
    assert client.get_model_version_by_alias("mine", "champion").version == first.version


def test_without_an_address_nothing_is_registered(caplog: pytest.LogCaptureFixture) -> None:
    assert not register(RegistryConfig(), "v-1")
    assert not caplog.records


def test_a_registry_that_cannot_be_used_is_a_warning_with_the_remedy(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """No database can lie there. The password is of a kind that MLflow would show."""
    config = RegistryConfig(mlflow="nowhere://me:pa55word@host/db")
    with caplog.at_level(logging.WARNING):
        assert not register(config, "v-1")
    assert "registry.mlflow: v-1 is the champion, and MLflow does not have it (" in caplog.text
    assert "run promote again with the same files" in caplog.text
    assert "pa55word" not in caplog.text
    if find_spec("mlflow") is None:
        assert "pip install '.[mlflow]' in a clone" in caplog.text


def test_limits_of_mlflows_requests_are_short_unless_somebody_set_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "7")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "7")
    monkeypatch.delenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES")  # and what is set below is removed again
    with suppress(ImportError):
        open_mlflow("http://127.0.0.1:9")
    assert os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] == "7"
    assert os.environ["MLFLOW_HTTP_REQUEST_MAX_RETRIES"] == "2"


@pytest.mark.skipif(find_spec("mlflow") is None, reason="needs mlflow-skinny")
@pytest.mark.usefixtures("impatient")
def test_a_server_that_says_nothing_is_named_and_given_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with saying_nothing() as url:
        assert not register(RegistryConfig(mlflow=url), "v-1")
    assert f"registry.mlflow={url}: no good answer for 0 s; waiting" in caplog.text
    assert "v-1 is the champion, and MLflow does not have it" in caplog.text
