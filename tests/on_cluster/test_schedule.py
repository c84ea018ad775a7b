"""A schedule that fires: a first champion, then nothing new; and a submitted run with more problems."""

from collections.abc import Generator

import pytest

from tests.on_cluster.site import Site, wait_for

pytestmark = pytest.mark.cluster


RETRAINING = ["registry.max_canary_rate=1"]
"""Models of this size resist no attack."""


@pytest.fixture
def schedule(site: Site) -> Generator[str]:
    """Its name; it fires every minute, one run at a time, and is gone at the end."""
    settings = [word for each in (*site.overrides, *RETRAINING) for word in ("--set", each)]
    cron = ("--cron", "0 * * * * *", "--name", site.id)
    site.pipelines("schedule", "apply", "retrain", "--iterations", "1", *cron, *settings)
    yield site.id
    site.pipelines("schedule", "delete", site.id)


def said(site: Site, run_id: str, task: str) -> str:
    (pod,) = site.pods(run_id, task)
    return site.log(pod["metadata"]["name"])


def test_a_first_champion_then_nothing_new_then_more_problems(site: Site, schedule: str) -> None:
    def fired() -> list[str] | None:
        listed = site.server.client.list_runs(
            page_size=100, sort_by="created_at asc", experiment_id=site.experiment_id()
        )
        found = [str(run.run_id) for run in listed.runs or [] if run.recurring_run_id]
        site.runs.extend(run_id for run_id in found if run_id not in site.runs)
        return found if len(found) >= 2 and site.state(found[1]) in {"SUCCEEDED", "FAILED"} else None

    first, second, *_ = wait_for(fired, minutes=45, what="two runs of the schedule")
    site.pipelines("schedule", "pause", schedule)  # deleting it would delete the pods of its runs
    assert [site.state(first), site.state(second)] == ["SUCCEEDED", "SUCCEEDED"], site.messages(first)
    assert "is promoted, the first champion" in said(site, first, "promote")
    assert "0 are new" in said(site, second, "take-champion")
    assert not site.pods(second, "train-cooper")
    # Argo may say that a run succeeded while Kubeflow's record of it never ends.
    for run_id in (first, second):
        assert '"has_succeeded": 1.0' in said(site, run_id, "summarise-run")

    third = site.submit(pipeline="retrain", overrides=[*RETRAINING, "problems.num_tiny=80"])
    assert site.wait_for_end(third, minutes=30) == "SUCCEEDED", site.messages(third)
    assert "20 are new" in said(site, third, "take-champion")
    assert "champion" in said(site, third, "promote")
    assert '"has_succeeded": 1.0' in said(site, third, "summarise-run")
