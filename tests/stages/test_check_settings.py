"""The first task of a run: the whole configuration, and the stores that it names."""

from pathlib import Path

import pytest

from cooper_rl.config.load import load
from cooper_rl.errors import ConfigError, StorageError
from cooper_rl.records.files import read_report
from cooper_rl.schema.runs import SettingsReport
from cooper_rl.stages import check_settings
from tests.stand_ins.fixtures import gateway, make_client, s3_server
from tests.stand_ins.radosgw import Gateway

__all__ = ["gateway", "s3_server"]


def check(folder: Path, *overrides: str) -> SettingsReport:
    result = check_settings.run(load("laptop", overrides), report=folder / "report.json")
    assert read_report(folder / "report.json", SettingsReport) == result
    return result


def test_a_run_without_a_store_has_nothing_to_look_at(tmp_path: Path) -> None:
    assert check(tmp_path, "seed=7") == SettingsReport(seed=7, checkpoints=None, champion=None)


def test_stores_are_tried_and_nothing_is_left_in_them(tmp_path: Path) -> None:
    store, registry = tmp_path / "store", tmp_path / "registry"
    found = check(tmp_path, f"storage.uri={store}", "storage.run_key=monday", f"registry.uri={registry}")
    assert found.checkpoints == f"{store}/monday"
    assert found.champion is None
    assert [path for path in tmp_path.rglob("*") if path.is_file() and not path.name.startswith(".")] == [
        tmp_path / "report.json"
    ]


def test_a_store_without_a_name_for_the_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"storage\.uri needs storage\.run_key"):
        check(tmp_path, f"storage.uri={tmp_path}")


def test_wrong_keys_of_a_real_store_are_found_before_anything_else_runs(
    gateway: Gateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_client(gateway.port, gateway.account).make_bucket("settings")
    settings = ["storage.uri=s3://settings/runs", "storage.run_key=a", f"storage.endpoint={gateway.endpoint}"]
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", gateway.account.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", gateway.account.secret_key)
    assert check(tmp_path, *settings).checkpoints == "s3://settings/runs/a"
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not it")
    with pytest.raises(StorageError, match="the credentials are refused"):
        check(tmp_path, *settings)
