"""Which checkpoint of a place a run continues from (row 13).

LATEST names it. Where LATEST is missing, names nothing, or is older than a checkpoint that builds on the one
it names, manifests decide. Nothing is fetched or changed here.
"""

import logging

from cooper_rl.checkpoints.manifest import MANIFEST, NAME, CheckpointManifest
from cooper_rl.checkpoints.reading import read_manifest
from cooper_rl.errors import DamagedObjectError
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
