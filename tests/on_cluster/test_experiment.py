"""Loops of a pipeline: the shards of labelling, and the arms of an experiment."""

import pytest

from tests.on_cluster.site import Site

pytestmark = pytest.mark.cluster


def test_loops_run_side_by_side_and_their_outputs_come_in_order(site: Site) -> None:
    """`merge_labels` and `compare_arms` refuse files in another order than that of the loop."""
    arms = {"arms": ("rule", "cooper"), "seeds": (3, 5), "runs_at_once": 2}
    profile = site.profile.model_copy(update={**arms, "label_shards": 2})
    run_id = site.start(profile, "cooper.steps=2", run_key="arms", pipeline="experiment")
    assert site.wait_for_end(run_id, minutes=40) == "SUCCEEDED", site.messages(run_id)
    assert len(site.pods(run_id, "label-completions")) == 2
    for arm, seed in profile.runs:
        assert site.weights(f"arms-{arm}_{seed}")["step"] == 2
    (pod,) = site.pods(run_id, "compare-arms")
    log = site.log(pod["metadata"]["name"])
    assert '"rule/judged_accuracy"' in log
    assert '"cooper/hacked"' in log
