"""What the acceptance tests give to `python -m pipelines`, against a server that speaks KFP's REST API.

These tests need no cluster and run with all others.
"""

from collections.abc import Generator
from pathlib import Path

import pytest

from pipelines.profile import load_profile
from pipelines.remote.server import HOST_ENV, Place, Server
from tests.on_cluster.site import Site
from tests.small_run import ROOT
from tests.stand_ins.kfp_api import KfpApi, run_kfp_api

PROFILE = ROOT / "pipelines" / "profiles" / "cluster.toml"


@pytest.fixture(params=[None, "team"], ids=["alone", "profile"])
def api(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Generator[KfpApi]:
    """A server for everybody, and one for many users, where only the namespace `team` is mine."""
    monkeypatch.setenv("HOME", str(tmp_path))  # kfp reads and writes ~/.config/kfp
    monkeypatch.setattr("kfp.Client._LOCAL_KFP_CONTEXT", str(tmp_path / "context.json"))
    monkeypatch.delenv("KFP_TOKEN", raising=False)
    with run_kfp_api(KfpApi(namespace=request.param)) as running:
        monkeypatch.setenv(HOST_ENV, running.url)
        yield running


def site_on(api: KfpApi) -> Site:
    place = Place(api.url, api.namespace)
    return Site(Server(place), load_profile("cluster"), PROFILE, api.namespace or "kubeflow", "storage")


def test_runs_are_submitted_where_the_suite_looks_for_them(api: KfpApi) -> None:
    site = site_on(api)
    run_id = site.submit("--param", "run_key=undisturbed")
    assert site.runs == [run_id]
    (experiment,) = api.experiments.values()
    assert (experiment["display_name"], experiment["namespace"] or None) == (site.id, api.namespace)
    assert api.runs[run_id]["experiment_id"] == site.experiment_id() == experiment["experiment_id"]


def test_schedules_are_made_and_removed_where_the_suite_looks_for_them(api: KfpApi) -> None:
    site = site_on(api)
    cron = ("--cron", "0 * * * * *", "--name", site.id)
    site.pipelines("schedule", "apply", "retrain", "--iterations", "1", *cron)
    (schedule,) = api.recurring.values()
    assert (schedule["display_name"], schedule["experiment_id"]) == (site.id, site.experiment_id())
    site.pipelines("schedule", "pause", site.id)
    site.pipelines("schedule", "delete", site.id)
    assert not api.recurring
