"""`python -m cooper_rl.storage.buckets`: buckets, users and rights on a MinIO server, from a plan.

It may run again at any time: buckets that exist stay, settings become what the plan says. On another S3
server (`--no-users`) it makes the buckets only; users are that server's matter. It removes nothing, neither
users of an earlier plan nor lifecycle rules of others.
"""

import argparse
import json
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import urllib3
from minio import Minio, MinioAdmin
from minio.commonconfig import ENABLED, Filter
from minio.credentials.providers import StaticProvider
from minio.error import MinioAdminException, MinioException
from minio.lifecycleconfig import (
    AbortIncompleteMultipartUpload,
    Expiration,
    LifecycleConfig,
    NoncurrentVersionExpiration,
    Rule,
)
from minio.versioningconfig import VersioningConfig
from pydantic import BaseModel, ConfigDict, ValidationError

from cooper_rl.errors import EXIT_INTERRUPTED, EXIT_USER_ERROR, ConfigError, CooperError, StorageError
from cooper_rl.outgoing import CONNECT_SECONDS, authorities
from cooper_rl.progress import show_log
from cooper_rl.schema.texts import in_one_line
from cooper_rl.storage.transfer import read_secret
from cooper_rl.waiting import Waiting

logger = logging.getLogger(__name__)

ALREADY_ATTACHED = "XMinioAdminPolicyChangeAlreadyApplied"
SILENCE_SECONDS = 60.0
NUM_TRIES = 3
OWN_RULE = "replaced-"
"""The beginning of the ids of lifecycle rules that are ours."""
UNFINISHED_DAYS = 7
"""No upload takes so long: its parts are those of a process that was killed. MinIO has a limit of its own."""


class Bucket(BaseModel):
    """One versioned bucket."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    keep_replaced_days: dict[str, int]
    """Prefix -> days after which a replaced or deleted object is really removed."""


class Plan(BaseModel):
    """The buckets and users that shall be there."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    buckets: list[Bucket]
    users: list[str]
    """Each with its rights in `NAME.json` beside the plan, and its credentials in a folder of that name."""


def read_plan(path: Path) -> Plan:
    """Raises ConfigError for a plan that cannot be read, naming the file and what is wrong."""
    try:
        return Plan.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise ConfigError(f"{path}: not a plan of buckets and users: {error}") from error


def prepare_buckets(client: Minio, plan: Plan) -> None:
    """Make every bucket, with versions and their expiry."""
    for bucket in plan.buckets:
        if not client.bucket_exists(bucket.name):
            client.make_bucket(bucket.name)
        client.set_bucket_versioning(bucket.name, VersioningConfig(ENABLED))
        client.set_bucket_lifecycle(bucket.name, _lifecycle(bucket, client.get_bucket_lifecycle(bucket.name)))
        logger.info("bucket %s is ready", bucket.name)


def _lifecycle(bucket: Bucket, present: LifecycleConfig | None) -> LifecycleConfig:
    own = [
        Rule(
            ENABLED,
            rule_filter=Filter(prefix=prefix),
            rule_id=f"{OWN_RULE}{prefix.strip('/') or 'all'}",
            abort_incomplete_multipart_upload=AbortIncompleteMultipartUpload(UNFINISHED_DAYS),
            # A deleted object leaves a marker, which nothing else removes once its versions have expired.
            expiration=Expiration(expired_object_delete_marker=True),
            noncurrent_version_expiration=NoncurrentVersionExpiration(noncurrent_days=days),
        )
        for prefix, days in sorted(bucket.keep_replaced_days.items())
    ]
    # A bucket has one configuration: what an administrator added, such as an end for logs, is in it too.
    rules = present.rules if present else []
    return LifecycleConfig([*own, *(rule for rule in rules if not (rule.rule_id or "").startswith(OWN_RULE))])


def prepare_users(admin: MinioAdmin, plan: Plan, *, policies: Path, credentials: Path) -> None:
    """Make every user, with the credentials of its folder and exactly the rights of its file."""
    for user in plan.users:
        policy = f"cooper-rl-{user}"
        admin.policy_add(policy, policy=_read_rights(policies / f"{user}.json"))
        access_key = read_secret(credentials / user / "access_key")
        admin.user_add(access_key, read_secret(credentials / user / "secret_key"))
        try:
            admin.attach_policy([policy], user=access_key)
        except MinioAdminException as error:
            if ALREADY_ATTACHED not in str(error):
                raise
        logger.info("user %s is ready", user)


def _read_rights(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{path}: not a user's rights as JSON: {error}; write an S3 policy there"
        ) from error


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0, or 2 with one line of error."""
    options = build_parser().parse_args(arguments)
    show_log()
    try:
        _run(options)
    except CooperError as error:
        sys.stderr.write(f"prepare_buckets: {error}\n")
        return EXIT_USER_ERROR
    except KeyboardInterrupt:
        sys.stderr.write("\nprepare_buckets: interrupted; start again with the same arguments\n")
        return EXIT_INTERRUPTED
    return 0


def _run(options: argparse.Namespace) -> None:
    plan = read_plan(options.plan)
    try:
        endpoint = urlsplit(options.endpoint)
    except ValueError:  # half a bracket of an IPv6 address
        endpoint = urlsplit("")
    if endpoint.scheme not in {"http", "https"} or not endpoint.hostname:
        raise ConfigError(f"--endpoint={options.endpoint}: give http(s)://host:port")
    access_key = read_secret(options.administrator / "access_key")
    secret_key = read_secret(options.administrator / "secret_key")
    # A region is named because the client would ask for each bucket's own first; it is the default of MinIO.
    where: dict[str, Any] = {
        "secure": endpoint.scheme == "https",
        "region": "us-east-1",
        "http_client": _open_pool(),
    }
    place = f"{endpoint.scheme}://{endpoint.netloc}"
    waiting = Waiting(place, logger, limit=f"{NUM_TRIES} tries of {SILENCE_SECONDS:g} s")
    try:
        with waiting.asked():
            prepare_buckets(Minio(endpoint.netloc, access_key, secret_key, **where), plan)
        if options.users is not None:
            provider = StaticProvider(access_key, secret_key)
            admin = MinioAdmin(endpoint=endpoint.netloc, credentials=provider, **where)
            with waiting.asked():
                prepare_users(admin, plan, policies=options.plan.parent, credentials=options.users)
    except (MinioException, MinioAdminException, urllib3.exceptions.HTTPError, ValueError) as error:
        reason = in_one_line(f"{type(error).__name__}: {error}")[:300]
        raise StorageError(
            f"{options.endpoint}: {reason}; check that the server runs and that {options.administrator} "
            "holds its administrator's credentials"
        ) from error


def _open_pool() -> urllib3.PoolManager:
    """Connections as the client of MinIO makes them, but for its six tries of five minutes."""
    return urllib3.PoolManager(
        timeout=urllib3.Timeout(connect=CONNECT_SECONDS, read=SILENCE_SECONDS),
        retries=urllib3.Retry(NUM_TRIES - 1, backoff_factor=0.2, status_forcelist=[500, 502, 503, 504]),
        cert_reqs="CERT_REQUIRED",
        ca_certs=authorities(),
    )


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m cooper_rl.storage.buckets", description=__doc__)
    parser.add_argument("--plan", type=Path, required=True, help="JSON file with buckets and users")
    parser.add_argument("--endpoint", required=True, help="http(s)://host:port of the server")
    parser.add_argument(
        "--administrator", type=Path, required=True, help="folder with its access_key and secret_key"
    )
    users = parser.add_mutually_exclusive_group(required=True)
    users.add_argument("--users", type=Path, help="folder with a folder of credentials for each user")
    users.add_argument("--no-users", action="store_const", const=None, dest="users", help="buckets only")
    return parser


if __name__ == "__main__":
    sys.exit(main())
