"""The search for the checkpoint that a run continues from (row 13).

LATEST names it. Where LATEST is missing, names nothing, or is older than a checkpoint that builds on the one
it names, manifests decide. Nothing is fetched or changed here.
"""

import hashlib
import logging
from collections.abc import Set

from cooper_rl.checkpoints.identity import RunIdentity, differences
from cooper_rl.checkpoints.logs import METRICS
from cooper_rl.checkpoints.manifest import LATEST, MANIFEST, NAME, CheckpointManifest
from cooper_rl.checkpoints.reading import read_manifest
from cooper_rl.errors import ConfigError, DamagedObjectError
from cooper_rl.storage.base import ObjectStore

logger = logging.getLogger(__name__)

Manifests = dict[str, CheckpointManifest]


def read_manifests(store: ObjectStore) -> Manifests:
    """The unharmed manifests of a place, by the name of their checkpoint; others are somebody else's.

    Raises:
        StorageError: the store cannot be used.
    """
    found: Manifests = {}
    for key in store.keys("step-"):
        name, _, file = key.partition("/")
        if file != MANIFEST or not NAME.fullmatch(name):
            continue
        try:
            found[name] = read_manifest(store, name)
        except DamagedObjectError as error:
            logger.info("%s is no checkpoint: %s", name, error)
    return found


def checkpoint_names(store: ObjectStore) -> set[str]:
    """Folders that are called as checkpoints are, whoever made them.

    Raises:
        StorageError: the store cannot be used.
    """
    names = {key.partition("/")[0] for key in store.keys("step-") if "/" in key}
    return {name for name in names if NAME.fullmatch(name)}


def remove_unfinished_pointers(store: ObjectStore, names: Set[str]) -> None:
    """Remove drafts of LATEST that killed runs left, of these checkpoints alone."""
    # By content: a draft that says something else is somebody else's file.
    pointers = [hashlib.sha256(f"{name}\n".encode()).hexdigest() for name in names]
    store.remove_unfinished([(LATEST, sha256) for sha256 in pointers])


def in_order(manifests: Manifests, latest: str | None) -> list[str]:
    """Names to try, the best first.

    With a LATEST: those that build on it, then it, then those that are not newer. A newer one that does not
    build on it lost against another writer. Without, or with one of no checkpoint: the newest first.
    """
    newest_first = sorted(manifests, key=lambda name: (-manifests[name].step, name))
    if latest is None or latest not in manifests:
        return newest_first
    later = [name for name in newest_first if any(e.name == latest for e in manifests[name].history)]
    step = manifests[latest].step
    before = [name for name in newest_first if manifests[name].step <= step and name not in {*later, latest}]
    return [*later, latest, *before]


def check_certain(manifests: Manifests, *, place: str) -> None:
    """Refuse to choose, without a LATEST, between two newest checkpoints of a run that differ.

    Raises:
        ConfigError: names both.
    """
    step = max(manifest.step for manifest in manifests.values())
    newest = sorted(name for name, manifest in manifests.items() if manifest.step == step)
    # The metrics hold timings.
    states = [{**manifests[name].sha256, METRICS: ""} for name in newest]
    if any(state != states[0] for state in states):
        raise ConfigError(
            f"{place}: {LATEST} is missing or names no checkpoint, and {' and '.join(newest)} differ; "
            f"write the name of the one to continue from into {LATEST}"
        )


def check_one_run(manifests: Manifests, *, place: str) -> None:
    """Refuse to choose, without a LATEST, between the checkpoints of two runs.

    Raises:
        ConfigError: names one of each.
    """
    first, *others = sorted(manifests)
    known = manifests[first]
    for name in others:
        if differences(manifests[name], RunIdentity(known.identity, known.defaults)):
            raise ConfigError(
                f"{place}: {LATEST} is missing or names no checkpoint, and {first} and {name} are of two "
                f"runs; write the name of the one to read into {LATEST}"
            )
