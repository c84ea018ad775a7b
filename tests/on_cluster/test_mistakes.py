"""Mistakes of a person or a platform: each shows within two minutes, where the dashboard shows it."""

from collections.abc import Callable

import pytest

from pipelines.profile import Profile, Secret
from tests.on_cluster.site import Site, wait_for

pytestmark = pytest.mark.cluster


def test_a_typing_error_in_an_override(site: Site) -> None:
    run_id = site.start(site.profile, "cooper.stepz=3")
    wait_for(
        lambda: "cooper.stepz: unknown key; did you mean 'steps'?" in site.messages(run_id),
        minutes=2,
        what="the message",
    )
    assert site.wait_for_end(run_id, minutes=5) == "FAILED"
    assert len(site.pods(run_id, "check-settings")) == 1, "a mistake is tried once"


def test_the_summary_of_a_failed_run_says_why(site: Site) -> None:
    """Below the store's prefix is no such file, which only the task that reads it finds out."""
    missing = f"{site.checkpoints}/no-such-problems.jsonl"
    run_id = site.start(site.profile, f'problems.sources=["{missing}"]')
    assert site.wait_for_end(run_id, minutes=10) == "FAILED"
    (pod,) = site.pods(run_id, "summarise-run")
    said = site.log(pod["metadata"]["name"])
    assert "summarise_run state=FAILED failures=['collect-problems: " in said
    assert missing in said


def with_wrong_image(profile: Profile) -> Profile:
    wrong = "registry.invalid/cooper-rl-cpu:0.0.0"
    return profile.model_copy(update={"cpu_image": wrong, "gpu_image": wrong})


def with_wrong_secret(profile: Profile) -> Profile:
    missing = Secret(name="no-such-secret", env={"access_key": "AWS_ACCESS_KEY_ID"})
    return profile.model_copy(update={"secrets": (missing,)})


@pytest.mark.parametrize(
    ("change", "message"),
    [(with_wrong_image, "registry.invalid"), (with_wrong_secret, "no-such-secret")],
    ids=["image", "secret"],
)
def test_what_the_cluster_does_not_have(
    site: Site, change: Callable[[Profile], Profile], message: str
) -> None:
    run_id = site.start(change(site.profile))
    wait_for(lambda: message in site.messages(run_id), minutes=2, what=f"a message with {message}")
    site.remove(run_id)
