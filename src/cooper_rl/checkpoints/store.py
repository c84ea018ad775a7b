"""Checkpoints as objects (row 13): published in an order that leaves no half of one, found again, tidied up.

    LATEST                       name of the newest checkpoint; written last, only if it is as we saw it
    step-000020/                 `step-000020-1a2b3c4d` where another writer took the shorter name
        writer                   who took the name
        policy/ verify_rm/ ...   what `checkpoints/state.py` wrote
        manifest.json            hash of every file; written when all of them are there

Of two writers, one finds LATEST changed and stops: that is why whatever is not reachable from our own LATEST
can be removed right after it was written. Deliberately left out: what the files hold, and torch.
"""

import logging
import secrets
import shutil
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from cooper_rl.checkpoints.manifest import (
    LATEST,
    MANIFEST,
    NAME,
    SMALL_FILES,
    WRITER,
    CheckpointEntry,
    CheckpointManifest,
    dump_manifest,
    files_below,
    retained,
)
from cooper_rl.config.infrastructure import StorageConfig
from cooper_rl.errors import (
    ConfigError,
    CooperWarning,
    DamagedObjectError,
    DataError,
    StorageError,
    WriteConflictError,
)
from cooper_rl.storage.base import ObjectStore, check_key, content_sha256, is_unharmed

logger = logging.getLogger(__name__)


class Found(NamedTuple):
    """A complete, verified checkpoint on this machine."""

    name: str
    folder: Path
    manifest: CheckpointManifest


class CheckpointStore:
    """The checkpoints of one run in one store. One object per process that writes them."""

    def __init__(self, store: ObjectStore, *, identity: Mapping[str, str], retention: StorageConfig) -> None:
        self._store = store
        self._identity = dict(identity)
        self._retention = retention
        self._tag: str | None = None
        self._history: tuple[CheckpointEntry, ...] = ()
        self._published: tuple[str, CheckpointManifest] | None = None

    @property
    def uri(self) -> str:
        """Address without credentials."""
        return self._store.uri

    def newest(self, folder: Path, *, last_step: int) -> Found | None:
        """The newest checkpoint that is whole, fetched into `folder` unless it can be read in place.

        A damaged one is passed over with a CooperWarning that names the object. None: nothing was
        completed here. Of a finished run (its step is `last_step` or later) only the small files are
        fetched and verified.

        Raises:
            ConfigError: it belongs to a run of another configuration or other data; names the keys.
            DataError: there is a LATEST, but no whole checkpoint.
            StorageError: the store cannot be used.
            WriteConflictError: another run publishes and removes checkpoints meanwhile.
        """
        pointer = self._store.read(LATEST)
        if pointer is None:
            return None
        self._tag = pointer.tag
        latest = pointer.name
        candidates = self._candidates(latest)
        for name in candidates:
            try:
                manifest = read_manifest(self._store, name)
                self._check_identity(manifest)
                starting_with = SMALL_FILES if manifest.step >= last_step else ("",)
                path = fetch(self._store, name, manifest, folder=folder, starting_with=starting_with)
            except DamagedObjectError as error:
                message = f"damaged checkpoint {name} is passed over, the one before is used: {error}"
                warnings.warn(message, CooperWarning, stacklevel=2)
                continue
            entry = CheckpointEntry(name=name, step=manifest.step, score=manifest.score)
            # What the writer removed after it was published is not there any more.
            self._history = tuple(each for each in (*manifest.history, entry) if each.name in candidates)
            return Found(name, path, manifest)
        if self._store.read(LATEST) != pointer:
            raise WriteConflictError(
                f"{self.uri}/{LATEST}: somebody else writes it; two runs use this place: stop one of them"
            )
        raise DataError(
            f"{self.uri}/{LATEST}: names {latest!r}, which holds no checkpoint; restore the folder, or "
            f"remove {LATEST} to start anew"
        )

    def newest_until(self, folder: Path, *, step: int) -> Found | None:
        """The newest kept checkpoint of this iteration up to a step, fetched into `folder`; None without one.

        A damaged one is passed over with a warning in the log.

        Raises:
            StorageError: the store cannot be used.
        """
        for entry in reversed(self._history):
            if entry.step > step:
                continue
            try:
                manifest = read_manifest(self._store, entry.name)
                path = fetch(self._store, entry.name, manifest, folder=folder, starting_with=("",))
            except DamagedObjectError as error:
                logger.warning("checkpoint %s is passed over: %s", entry.name, error)
            else:
                return Found(entry.name, path, manifest)
        return None

    def prepare(self) -> None:
        """Find out before the first step whether checkpoints can be written, and safely.

        Raises:
            StorageError: refused, full, unreachable, or a server that ignores conditions.
        """
        check_conditional_writes(self._store)

    def publish(
        self,
        folder: Path,
        *,
        step: int,
        score: float | None,
        versions: Mapping[str, str],
        back_to: Sequence[int] = (),
    ) -> None:
        """Store a folder's files, then its manifest, then LATEST; then remove what is no longer kept.

        Beside what the retention says, the newest checkpoint up to each step of `back_to` is kept.

        Raises:
            WriteConflictError: another run published meanwhile; its checkpoint stands.
            StorageError: the store cannot be used; the previous checkpoint stands.
        """
        name = self._claim(step)
        hashes = {file: content_sha256(folder / file) for file in files_below(folder)}
        for file, sha256 in hashes.items():
            self._store.put_file(f"{name}/{file}", folder / file, sha256=sha256, may_link=True)
        manifest = CheckpointManifest(
            step=step,
            score=score,
            identity=self._identity,
            versions=dict(versions),
            history=self._history,
            sha256=hashes,
        ).sealed()
        self._store.write(f"{name}/{MANIFEST}", dump_manifest(manifest), replaces=None)
        self._tag = self._store.write(LATEST, f"{name}\n".encode(), replaces=self._tag)
        entries = (*self._history, CheckpointEntry(name=name, step=step, score=score))
        kept = retained(entries, self._retention, back_to=back_to)
        self._history = kept
        logger.info("checkpoint %s/%s", self.uri, name)
        self._published = (name, manifest)
        self._tidy([entry.name for entry in kept])

    def published(self, folder: Path) -> Found:
        """The checkpoint that this process published last, with its small files only."""
        assert self._published is not None, "nothing was published yet"
        name, manifest = self._published
        path = fetch(self._store, name, manifest, folder=folder, starting_with=SMALL_FILES)
        return Found(name, path, manifest)

    def _claim(self, step: int) -> str:
        name = f"step-{step:06d}"
        writer = secrets.token_hex(4)
        try:
            self._store.write(f"{name}/{WRITER}", writer.encode(), replaces=None)
        except WriteConflictError:
            name = f"{name}-{writer}"
            self._store.write(f"{name}/{WRITER}", writer.encode(), replaces=None)
        return name

    def _candidates(self, latest: str) -> list[str]:
        """LATEST's checkpoint, then all of its step and before, newest first."""
        is_named = NAME.fullmatch(latest)
        names = {key.split("/")[0] for key in self._store.keys("step-") if key.endswith(f"/{MANIFEST}")}
        steps = {name: int(match[1]) for name in sorted(names) if (match := NAME.fullmatch(name))}
        limit = int(is_named[1]) if is_named else max(steps.values(), default=0)
        older = [name for name in steps if steps[name] <= limit and name != latest]
        return [*([latest] if is_named else []), *sorted(older, key=lambda name: -steps[name])]

    def _check_identity(self, manifest: CheckpointManifest) -> None:
        keys = sorted({*manifest.identity, *self._identity})
        differing = [key for key in keys if manifest.identity.get(key) != self._identity.get(key)]
        if differing:
            there, here = manifest.identity, self._identity
            shown = "; ".join(
                f"{key}: {there.get(key, 'absent')} there, {here.get(key, 'absent')} here"
                for key in differing
            )
            raise ConfigError(
                f"{self.uri}: holds a run of another configuration or other data ({shown}); choose another "
                "run_key or checkpoint folder, or start with what it was started with"
            )

    def _tidy(self, kept: Sequence[str]) -> None:
        """Remove old checkpoints and leftovers of interrupted writers; failing at it does not matter."""
        try:
            keys = [key for key in self._store.keys("step-") if key.split("/")[0] not in kept]
            # The manifest goes first: without it nobody takes the rest for a checkpoint.
            self._store.delete(sorted(keys, key=lambda key: not key.endswith(f"/{MANIFEST}")))
            self._store.remove_unfinished()
        except StorageError as error:
            logger.warning("old checkpoints stay for now: %s", error)


def check_conditional_writes(store: ObjectStore) -> None:
    """Find out whether a store can be written, and safely.

    Raises:
        StorageError: refused, full, unreachable, or a server that ignores conditions.
    """
    probe = f"{WRITER}-{secrets.token_hex(4)}"
    store.write(probe, b"probe", replaces=None)
    try:
        store.write(probe, b"second", replaces=None)
        is_refused = False
    except WriteConflictError:
        is_refused = True
    store.delete([probe])
    if is_refused:
        return
    raise StorageError(
        f"{store.uri}: the server ignores If-None-Match, so that two runs could overwrite each other; use "
        "one with conditional writes (MinIO, AWS, Ceph; Ceph 16 only in a bucket that keeps no versions)"
    )


def read_manifest(store: ObjectStore, name: str) -> CheckpointManifest:
    """The manifest of a checkpoint, unharmed.

    Raises:
        DamagedObjectError: missing, or not what was written.
        StorageError: it names files outside its folder.
    """
    place = f"{store.uri}/{name}/{MANIFEST}"
    content = store.read(f"{name}/{MANIFEST}")
    if content is None:
        raise DamagedObjectError(f"{place}: missing since it was written; use an earlier checkpoint")
    try:
        manifest = CheckpointManifest.model_validate_json(content.data)
    except ValidationError as error:
        raise DamagedObjectError(f"{place}: not a manifest; use an earlier checkpoint") from error
    if manifest.sealed() != manifest:
        raise DamagedObjectError(f"{place}: changed since it was written; use an earlier checkpoint")
    for file in manifest.sha256:
        check_key(file)
    return manifest


def fetch(
    store: ObjectStore,
    name: str,
    manifest: CheckpointManifest,
    *,
    folder: Path,
    starting_with: tuple[str, ...] = ("",),
) -> Path:
    """A checkpoint's verified files: in place where the store is local, else below `folder`.

    Args:
        store: where it is.
        name: the checkpoint.
        manifest: its manifest.
        folder: where fetched files go.
        starting_with: fetch only files whose path starts so.

    Raises:
        DamagedObjectError: a file is missing or changed; names it.
    """
    for file, sha256 in manifest.sha256.items():
        if not file.startswith(starting_with):
            continue
        in_place = store.path_of(f"{name}/{file}")
        if in_place is None:
            store.get_file(f"{name}/{file}", folder / name / file, sha256=sha256)
        elif not in_place.is_file():
            raise DamagedObjectError(f"{in_place}: missing since it was written; use an earlier checkpoint")
        elif not is_unharmed(in_place, sha256):
            raise DamagedObjectError(f"{in_place}: changed since it was written; use an earlier checkpoint")
    in_place = store.path_of(f"{name}/{MANIFEST}")
    return folder / name if in_place is None else in_place.parent


def remove_folder(folder: Path) -> None:
    """Remove a folder that may not be there."""
    if folder.exists():
        shutil.rmtree(folder)
