"""The end of a place for checkpoints: what its runs wrote is removed when nobody will continue them.

Co-training's checkpoints are its result and stay. Those of a stage that ends with another result go.
"""

import logging

from cooper_rl.checkpoints.identity import RunIdentity, differences
from cooper_rl.checkpoints.manifest import LATEST
from cooper_rl.checkpoints.ownership import MARKER, Claim, read_claim, read_marker, remove
from cooper_rl.checkpoints.reading import read_manifest
from cooper_rl.checkpoints.search import checkpoint_names, remove_unfinished_pointers
from cooper_rl.errors import DamagedObjectError, StorageError
from cooper_rl.storage.base import ObjectStore
from cooper_rl.storage.probe import remove_probes

logger = logging.getLogger(__name__)


def clear(store: ObjectStore, identity: RunIdentity, *, keeps_mark: bool) -> None:
    """Remove the checkpoints of a run, and the marks of its place; whatever is not ours stays.

    Failing at it does not matter: the log says so.

    Args:
        store: the place.
        identity: of the run.
        keeps_mark: the mark of the place stays, because another process may work there.
    """
    try:
        place = read_marker(store)
        if place is None:
            return
        names = checkpoint_names(store)
        own = [claimed for name in sorted(names) if (claimed := _own(store, name, identity, place))]
        pointer = store.read(LATEST)
        # First: a pointer to a checkpoint that is half gone would refuse the next start.
        if pointer is not None and pointer.name in {claimed.name for claimed in own}:
            store.delete([LATEST])
        for claimed in own:
            remove(store, claimed, keeps_log=False)
        remove_unfinished_pointers(store, names)
        if not keeps_mark and len(own) == len(names) and store.read(LATEST) is None:
            remove_probes(store)
            store.delete([MARKER])
    except StorageError as error:
        logger.warning("checkpoints that nobody needs stay: %s", error)


def _own(store: ObjectStore, name: str, identity: RunIdentity, place: str) -> Claim | None:
    claimed = read_claim(store, name, place=place)
    try:
        is_other = claimed is None or bool(differences(read_manifest(store, name), identity))
    except DamagedObjectError:  # never finished, or not whole: its claim decides
        is_other = False
    if is_other:
        logger.warning("%s/%s: it is not of this run, and stays", store.uri, name)
    return None if is_other else claimed
