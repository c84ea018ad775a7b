"""The users' rights: enough for what the programs do, and nothing else, as the policies evaluate."""

import json
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

POLICIES = Path(__file__).parent.parent.parent / "manifests" / "base" / "storage" / "policies"
READ = ["s3:GetObject"]
FIND = ["s3:ListBucket", "s3:GetBucketLocation"]
STORE = [*READ, "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload", "s3:ListMultipartUploadParts"]
FORBIDDEN = [
    "s3:DeleteObjectVersion",
    "s3:DeleteBucket",
    "s3:CreateBucket",
    "s3:PutBucketPolicy",
    "s3:PutBucketVersioning",
    "s3:PutLifecycleConfiguration",
    "s3:BypassGovernanceRetention",
    "s3:ListAllMyBuckets",
]


def is_allowed(user: str, action: str, resource: str) -> bool:
    """As S3 evaluates a policy: one statement allows, and none denies."""
    statements = json.loads((POLICIES / f"{user}.json").read_text(encoding="utf-8"))["Statement"]
    effects = {item["Effect"] for item in statements if _applies(item, action, resource)}
    return effects == {"Allow"}


def _applies(statement: dict[str, Any], action: str, resource: str) -> bool:
    resources = [item.removeprefix("arn:aws:s3:::") for item in statement.get("Resource", ["*"])]
    is_named = any(fnmatchcase(action, pattern) for pattern in statement["Action"])
    return is_named and any(fnmatchcase(resource, pattern) for pattern in resources)


@pytest.mark.parametrize(
    ("user", "writes", "reads", "others"),
    [
        ("kfp", ["mlpipeline"], [], ["cooper-rl", "cooper-rl-models", "somebody-elses"]),
        ("train", ["cooper-rl"], ["cooper-rl-models"], ["mlpipeline", "somebody-elses"]),
        ("serve", [], ["cooper-rl-models"], ["mlpipeline", "cooper-rl", "somebody-elses"]),
    ],
)
def test_a_user_may_do_what_it_needs_and_nothing_else(
    user: str, writes: list[str], reads: list[str], others: list[str]
) -> None:
    for bucket in [*writes, *reads]:
        assert all(is_allowed(user, action, bucket) for action in FIND)
        assert is_allowed(user, "s3:GetObject", f"{bucket}/a/b")
    for bucket in writes:
        assert all(is_allowed(user, action, f"{bucket}/a/b") for action in STORE)
        assert is_allowed(user, "s3:ListBucketMultipartUploads", bucket)
    for bucket in reads:
        assert not any(is_allowed(user, action, f"{bucket}/a/b") for action in STORE if action not in READ)
    for bucket in others:
        assert not any(is_allowed(user, action, bucket) for action in FIND)
        assert not any(is_allowed(user, action, f"{bucket}/a/b") for action in STORE)
    for bucket in [*writes, *reads, *others]:
        for action in FORBIDDEN:
            assert not is_allowed(user, action, bucket)
            assert not is_allowed(user, action, f"{bucket}/a/b")


@pytest.mark.parametrize("user", ["kfp", "train", "serve"])
def test_no_user_may_make_keys_of_its_own(user: str) -> None:
    """MinIO lets every user make service accounts unless a policy denies it by name."""
    statements = json.loads((POLICIES / f"{user}.json").read_text(encoding="utf-8"))["Statement"]
    denied = {action for item in statements if item["Effect"] == "Deny" for action in item["Action"]}
    assert {"admin:CreateServiceAccount", "admin:UpdateServiceAccount"} <= denied
    assert not is_allowed(user, "admin:CreateServiceAccount", "*")


def test_every_user_of_the_plan_has_its_rights() -> None:
    plan = json.loads((POLICIES.parent / "buckets.json").read_text(encoding="utf-8"))
    assert {path.stem for path in POLICIES.glob("*.json")} == set(plan["users"])
    text = "".join(path.read_text(encoding="utf-8") for path in POLICIES.glob("*.json"))
    assert all(f"arn:aws:s3:::{bucket['name']}/*" in text for bucket in plan["buckets"])
