"""Checkpoints as objects (row 13): published in an order that leaves no half of one, found again, tidied up.

    .cooper-rl                   marks the place as one of ours
    LATEST                       name of the newest checkpoint; written last, only if it is as we saw it
    step-000020/                 `step-000020-1a2b3c4d` where the shorter name is taken
        writer                   claim: names every file that follows
        policy/ verify_rm/ ...   what `checkpoints/state.py` wrote
        manifest.json            hash of every file; written when all of them are there
    logs/                        rows of every step, in pieces; see `checkpoints/logs.py`

If two runs share a place, the slower one sees a changed LATEST and stops. So after writing LATEST, every
claim of this place that LATEST does not lead to can be removed. Nothing else is (`checkpoints/ownership.py`).
"""

import hashlib
import logging
import secrets
import shutil
import warnings
from collections.abc import Mapping, Sequence, Set
from pathlib import Path

from cooper_rl.checkpoints.identity import RunIdentity, differences
from cooper_rl.checkpoints.logs import LOGS, METRICS, RunLog, read_pieces, write_index
from cooper_rl.checkpoints.manifest import (
    LATEST,
    MANIFEST,
    NAME,
    CheckpointEntry,
    CheckpointManifest,
    dump_manifest,
    retained,
)
from cooper_rl.checkpoints.ownership import Claim, claim, mark, read_claim, remove
from cooper_rl.checkpoints.reading import Found, fetch, read_manifest
from cooper_rl.checkpoints.search import (
    Manifests,
    check_certain,
    checkpoint_names,
    in_order,
    read_manifests,
    remove_unfinished_pointers,
)
from cooper_rl.config.infrastructure import StorageConfig, is_stored
from cooper_rl.errors import (
    ConfigError,
    CooperWarning,
    DamagedObjectError,
    DataError,
    StorageError,
    WriteConflictError,
)
from cooper_rl.storage.base import ObjectStore, content_sha256, files_below
from cooper_rl.storage.probe import check_conditional_writes, try_for_a_moment

logger = logging.getLogger(__name__)


class CheckpointStore:
    """The checkpoints of one run in one store. One object per process that writes them."""

    def __init__(
        self,
        store: ObjectStore,
        *,
        identity: RunIdentity,
        retention: StorageConfig,
        remedy: str = "choose another run_key or checkpoint folder",
    ) -> None:
        """`remedy`: what who meets another run's checkpoints can do."""
        self._store = store
        self._remedy = remedy
        self._identity = identity
        self._retention = retention
        self._place: str | None = None
        self._tag: str | None = None
        self._found: Set[str] = frozenset()
        """Names of this run's checkpoints that `newest` found."""
        self._history: tuple[CheckpointEntry, ...] = ()
        self._log = RunLog()
        self._others: set[str] = set()
        """Names of checkpoints and folders that are not this run's; they stay."""
        self._is_tidy = False
        self._published: tuple[str, CheckpointManifest] | None = None

    @property
    def uri(self) -> str:
        """Address without credentials."""
        return self._store.uri

    @property
    def patience(self) -> str:
        """Words for the seconds that a server may be away before it is given up; empty for a folder."""
        if not is_stored(self.uri):
            return ""
        retry, silence = self._retention.retry_seconds, self._retention.timeout_seconds
        return (
            f"; a store that does not answer is given up after about {retry + silence:g} s "
            f"(storage.retry_seconds={retry:g}, storage.timeout_seconds={silence:g})"
        )

    def newest(self, folder: Path, *, last_step: int, logs: tuple[str, ...] = (METRICS,)) -> Found | None:
        """The newest checkpoint that is whole, fetched into `folder` unless it can be read in place.

        LATEST names it. Where LATEST is missing or names nothing, the newest whole checkpoint is used, and
        the log names it. A damaged one is passed over with a CooperWarning that names the object. None:
        nothing was completed here. Of the log the kinds of rows in `logs` are fetched and verified, and all
        files of the checkpoint but those of a finished run (its step is `last_step` or later).

        Raises:
            ConfigError: it belongs to a run of another configuration or other data, and names the keys; or
                several runs' checkpoints are here, and no LATEST chooses.
            DataError: there is a LATEST, but no whole checkpoint.
            StorageError: the store cannot be used.
            WriteConflictError: another run publishes and removes checkpoints meanwhile.
        """
        # Read first: its tag is what `publish` replaces, so that whoever wrote in between is noticed.
        pointer = self._store.read(LATEST)
        self._tag = pointer.tag if pointer else None
        latest = pointer.name if pointer else None
        damage: dict[str, str] = {}
        manifests = read_manifests(self._store)
        if latest is not None and latest not in manifests and NAME.fullmatch(latest):
            try:
                # Read again for its error: `read_manifests` passes over what it cannot read.
                manifests[latest] = read_manifest(self._store, latest)
            except DamagedObjectError as error:
                _warn(latest, error)
        manifests = self._own(manifests, latest)
        self._found = frozenset(manifests)
        for name in in_order(manifests, latest):
            manifest = manifests[name]
            try:
                # No path starts with one of no prefixes: of a finished run nothing but the log is fetched.
                needed = () if manifest.step >= last_step else ("",)
                found = fetch(self._store, name, manifest, folder=folder, starting_with=needed, logs=logs)
            except DamagedObjectError as error:
                _warn(name, error)
                damage[name] = str(error).partition(";")[0]  # without the remedy, which is another one here
                continue
            if name != latest:
                logger.warning(
                    "%s/%s: is %s; continuing from %s", self.uri, LATEST, latest or "missing", name
                )
            entry = CheckpointEntry(name=name, step=manifest.step, score=manifest.score)
            # What the writer removed after it was published is not there any more.
            self._history = tuple(each for each in (*manifest.history, entry) if each.name in manifests)
            self._log = manifest.log or RunLog()
            return found
        # Nothing whole was found. Either it is damaged, or another run is tidying up under our eyes: LATEST
        # tells.
        if self._store.read(LATEST) != pointer:
            raise WriteConflictError(
                f"{self.uri}/{LATEST}: somebody else writes it; two runs use this place: stop one of them"
            )
        if pointer is None and not manifests:
            return None
        if pointer is None:
            held = "is missing, and no checkpoint is whole"
        elif latest in damage:
            held = f"names {latest!r}, which is damaged ({damage[latest]})"
        else:
            held = f"names {latest!r}, which holds no checkpoint"
        raise DataError(
            f"{self.uri}/{LATEST}: {held}; restore the folder, or choose another folder or run_key"
            + (f", or remove {LATEST} to start anew" if pointer and not manifests else "")
        )

    def forget_log(self) -> None:
        """Let the next checkpoint begin a new log; the pieces until now stay, and nothing names them."""
        self._log = RunLog()

    def lead_to(self, name: str) -> None:
        """Let LATEST name a checkpoint that `newest` found, so that later stages read the same one.

        Raises:
            StorageError: the store cannot be used.
            WriteConflictError: another run published meanwhile.
        """
        pointer = self._store.read(LATEST)
        if pointer is None or pointer.name != name:
            self._point_at(name)

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
                return fetch(self._store, entry.name, manifest, folder=folder)
            except DamagedObjectError as error:
                logger.warning("checkpoint %s is passed over: %s", entry.name, error)
        return None

    def prepare(self) -> None:
        """Find out before the first step whether checkpoints can be written, and safely; then mark the place.

        Raises:
            StorageError: refused, full, unreachable, marked by somebody else, or a server that ignores
                conditions.
        """
        check_conditional_writes(self._store)
        self.mark()

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

        Files in its folder `logs` are the next piece of the log. Beside what the retention says, the newest
        checkpoint up to each step of `back_to` is kept.

        Raises:
            WriteConflictError: another run published meanwhile; its checkpoint stands.
            StorageError: the store cannot be used; the previous checkpoint stands.
        """
        drafted = folder / LOGS
        if drafted.is_dir():
            write_index(drafted, self._log)
        rows = {file: content_sha256(drafted / file) for file in files_below(drafted)}
        hashes = {
            file: content_sha256(folder / file)
            for file in files_below(folder)
            if not file.startswith(f"{LOGS}/")
        }
        # Random: two processes of the same run, one of them believed dead, must not write the same names.
        writer = secrets.token_hex(4)
        piece = self._log.piece_name(step=step, writer=writer)
        log = self._log.extended(piece, rows, step=step) if rows else self._log
        manifest = CheckpointManifest(
            step=step,
            score=score,
            identity=dict(self._identity.chosen),
            defaults=dict(self._identity.defaults),
            versions=dict(versions),
            history=self._history,
            sha256=hashes,
            log=log if log.pieces else None,
        ).sealed()
        written = dump_manifest(manifest)
        claimed = hashes | {MANIFEST: hashlib.sha256(written).hexdigest()}
        name = claim(
            self._store,
            f"step-{step:06d}",
            claimed,
            place=self.mark(),
            writer=writer,
            log={f"{piece}/{file}": sha256 for file, sha256 in rows.items()},
        )
        try:
            for file, sha256 in rows.items():
                # The log first, since a manifest that names it may exist only when it does.
                self._store.put_file(f"{piece}/{file}", drafted / file, sha256=sha256, may_link=True)
            for file, sha256 in hashes.items():
                self._store.put_file(f"{name}/{file}", folder / file, sha256=sha256, may_link=True)
            # After every file that it names: whoever can read a manifest can read the checkpoint.
            self._store.write(f"{name}/{MANIFEST}", written, replaces=None)
        except StorageError:
            self._give_up(name)
            raise
        # The one moment in which the checkpoint becomes the run's: before it, it is unreachable, after it
        # complete.
        self._point_at(name)
        self._log = log
        entries = (*self._history, CheckpointEntry(name=name, step=step, score=score))
        self._history = retained(entries, self._retention, back_to=back_to)
        logger.info("checkpoint %s/%s", self.uri, name)
        self._published = (name, manifest)
        # Only now: until LATEST was written, the checkpoints that go were the ones to continue from.
        self._tidy(before={entry.name for entry in entries})

    def published(self, folder: Path) -> Found:
        """The checkpoint that this process published last, with the metrics of every step alone."""
        assert self._published is not None, "nothing was published yet"
        name, manifest = self._published
        return fetch(self._store, name, manifest, folder=folder, starting_with=(), logs=(METRICS,))

    def mark(self) -> str:
        """Mark the place as one of ours, unless it is; returns its id."""
        if self._place is None:
            self._place = mark(self._store)
        return self._place

    def _give_up(self, name: str) -> None:
        """Remove what was stored of a checkpoint that failed: it would hold the room of every later one."""

        def remove_claimed() -> None:
            claimed = read_claim(self._store, name, place=self.mark())
            if claimed is not None:
                remove(self._store, claimed, keeps_log=False)

        # The next process that publishes removes the rest.
        try_for_a_moment(remove_claimed)

    def _point_at(self, name: str) -> None:
        """Let LATEST name a checkpoint, if it still is as this process saw it."""
        content = _as_pointer(name)
        try:
            self._tag = self._store.write(LATEST, content, replaces=self._tag)
        except WriteConflictError:
            # A process that was killed while it wrote LATEST may have got through although it did not show.
            # Then LATEST names a checkpoint that was there at the start. If that process lives, it is the one
            # that stops.
            tag = self._store.tag_among(LATEST, map(_as_pointer, self._found))
            if tag is None:
                raise
            self._tag = self._store.write(LATEST, content, replaces=tag)

    def _own(self, manifests: Manifests, latest: str | None) -> Manifests:
        """The manifests of this run; those of others are refused where LATEST does not tell them apart."""
        own = {
            name: manifest
            for name, manifest in manifests.items()
            if not differences(manifest, self._identity)
        }
        # Remembered, because `_tidy` would otherwise meet them as claims that LATEST does not lead to.
        self._others = {name for name in manifests if name not in own}
        if latest in self._others:
            raise self._another_run(manifests[latest])
        if self._others and latest not in own:
            newest = max(self._others, key=lambda name: manifests[name].step)
            if not own:
                raise self._another_run(manifests[newest])
            raise ConfigError(
                f"{self.uri}: {LATEST} is missing or names no checkpoint, and {max(own)} is of this run, but "
                f"{newest} of another configuration or other data; write the name of the one to continue "
                f"from into {LATEST}, or move the others away"
            )
        if latest not in own and own:
            check_certain(own, place=self.uri)
        return own

    def _another_run(self, manifest: CheckpointManifest) -> ConfigError:
        shown = "; ".join(differences(manifest, self._identity))
        return ConfigError(
            f"{self.uri}: holds a run of another configuration or other data ({shown}); {self._remedy}, "
            "or start with what it was started with"
        )

    def _tidy(self, *, before: Set[str]) -> None:
        """Remove old checkpoints and leftovers of interrupted writers; failing at it does not matter.

        Args:
            before: names of the checkpoints that were kept until now.
        """
        kept = {entry.name for entry in self._history}
        try:
            names = checkpoint_names(self._store)
            for name in sorted(names - kept - self._others):
                is_ours = not self._is_of_another_run(name)
                claimed = read_claim(self._store, name, place=self.mark()) if is_ours else None
                if claimed is None:
                    self._others.add(name)
                    logger.warning("%s/%s: it is not of this run, and stays", self.uri, name)
                else:
                    # The log of later checkpoints holds the piece of one that was published.
                    remove(self._store, claimed, keeps_log=name in before or self._logs(claimed))
            if not self._is_tidy:  # a run that was killed may have left a draft of LATEST
                remove_unfinished_pointers(self._store, names)
                self._is_tidy = True
        except StorageError as error:
            logger.warning("old checkpoints stay for now: %s", error)

    def _logs(self, claimed: Claim) -> bool:
        """True if our log holds the piece of a checkpoint that our history lacks. That happens to a run that
        is killed while it removes a checkpoint."""
        names = {key.rpartition("/")[0] for key in claimed.log}
        try:
            return bool(names) and any(piece.name in names for piece in read_pieces(self._store, self._log))
        except DamagedObjectError:
            return True  # perhaps

    def _is_of_another_run(self, name: str) -> bool:
        try:
            return bool(differences(read_manifest(self._store, name), self._identity))
        except DamagedObjectError:  # never finished, or not whole: its claim decides
            return False


def _as_pointer(name: str) -> bytes:
    """The content of LATEST that names a checkpoint."""
    return f"{name}\n".encode()


def _warn(name: str, error: DamagedObjectError) -> None:
    message = f"damaged checkpoint {name} is passed over, the one before is used: {error}"
    warnings.warn(message, CooperWarning, stacklevel=3)


def remove_folder(folder: Path) -> None:
    """Remove a folder that may not be there."""
    if folder.exists():
        shutil.rmtree(folder)
