"""The cluster of `make test-cluster`: the one that KUBECONFIG and KF_PIPELINES_ENDPOINT name."""

import os
import shutil
from collections.abc import Generator
from pathlib import Path

import pytest

from pipelines.profile import load_profile
from pipelines.remote.server import HOST_ENV, Place, Server
from tests.on_cluster.site import Site
from tests.short_stack import short_stack

__all__ = ["short_stack"]


@pytest.fixture(scope="session")
def site() -> Generator[Site]:
    """What the environment names; everything that was made there is removed at the end."""
    profile = os.environ.get("COOPER_PROFILE")
    host = os.environ.get(HOST_ENV)
    missing = [name for name in ("KUBECONFIG", HOST_ENV, "COOPER_PROFILE") if not os.environ.get(name)]
    if missing or profile is None or host is None:
        pytest.skip(f"no cluster: set {', '.join(missing)} (docs/cluster/operations.md, step 9)")
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed")
    namespace = os.environ.get("COOPER_NAMESPACE")
    path = Path(profile).resolve()
    found = Site(
        Server(Place(host, namespace)),
        load_profile(str(path)),
        path,
        namespace or "kubeflow",
        os.environ.get("COOPER_STORAGE_NAMESPACE", "cooper-rl-storage"),
    )
    yield found
    found.clean()


@pytest.fixture(scope="session")
def undisturbed(site: Site) -> str:
    """The id of a run of the whole pipeline that nobody disturbed."""
    run_id = site.submit("--param", "run_key=undisturbed")
    assert site.wait_for_end(run_id, minutes=30) == "SUCCEEDED", site.messages(run_id)
    return run_id


@pytest.fixture
def may_disturb() -> None:
    """Others on the cluster would notice what the test does."""
    if os.environ.get("COOPER_DISTURB") != "1":
        pytest.skip("stops servers that others may be using: set COOPER_DISTURB=1")
