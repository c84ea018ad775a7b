"""What each key may do on the object store, whom the network lets through, and Pod Security."""

import json

import pytest

from tests.on_cluster.site import Site

pytestmark = pytest.mark.cluster

RIGHTS = """
import io
from minio.error import S3Error

def may(action):
    try:
        action()
    except S3Error as error:
        if error.code == "AccessDenied":
            return False
        if error.code != "NoSuchKey":
            raise
    return True

found = {}
for bucket in given["buckets"]:
    key = given["key"]
    found[bucket] = "".join(letter for letter, is_allowed in {
        "w": may(lambda: store.put_object(bucket, key, io.BytesIO(b"x"), 1)),
        "r": may(lambda: store.stat_object(bucket, key)),
        "l": may(lambda: list(store.list_objects(bucket, prefix=key))),
        "d": may(lambda: store.remove_object(bucket, key)),
        "p": may(lambda: store.get_bucket_policy(bucket)),
    }.items() if is_allowed)
print(json.dumps(found))
"""
# A network plug-in may take some seconds to admit a new pod, or to shut it out.
CONNECT = """
import json, socket, sys, time
from urllib.parse import urlsplit
address = urlsplit(json.loads(sys.argv[1])["endpoint"])
time.sleep(10)
found, end = "refused", time.monotonic() + 30
while found == "refused" and time.monotonic() < end:
    try:
        socket.create_connection((address.hostname, address.port), timeout=10).close()
        found = "reached"
    except OSError:
        time.sleep(1)
print(found)
"""


@pytest.mark.parametrize(
    ("user", "expected"),
    [
        ("kfp", {"mlpipeline": "wrld", "cooper-rl": "", "cooper-rl-models": ""}),
        ("train", {"mlpipeline": "", "cooper-rl": "wrld", "cooper-rl-models": "rl"}),
        ("serve", {"mlpipeline": "", "cooper-rl": "", "cooper-rl-models": "rl"}),
    ],
)
def test_a_key_does_what_it_must_and_nothing_else(site: Site, user: str, expected: dict[str, str]) -> None:
    """Write, read, list, delete; and the bucket's policy, which is the administrator's alone."""
    found = site.ask_store(RIGHTS, secret=f"object-store-{user}", buckets=list(expected), key=site.id)
    assert found == expected


@pytest.mark.parametrize(
    ("namespace", "expected"), [(None, "reached"), ("default", "refused")], ids=["run", "elsewhere"]
)
def test_the_store_is_reached_from_the_namespace_of_runs_alone(
    site: Site, namespace: str | None, expected: str
) -> None:
    found = site.run_pod(CONNECT, given={}, namespace=namespace).strip()
    assert found == expected, "is there a network plug-in?"


def test_the_pods_of_a_run_fit_pod_security_restricted(site: Site, undisturbed: str) -> None:
    answer = site.kubectl(
        "label", "namespace", site.namespace, "--dry-run=server", "--overwrite",
        "pod-security.kubernetes.io/enforce=restricted", with_warnings=True,
    )  # fmt: skip
    names = {pod["metadata"]["name"] for pod in site.pods(undisturbed)}
    assert names
    assert not [line for line in answer.splitlines() if any(name in line for name in names)], json.dumps(
        answer
    )
