"""States of VerifyRM's training, so that one which was killed, stopped or evicted goes on (row 13).

    <verify_rm>.unfinished/                 beside the output, without a storage.uri
    <storage.uri>/_fits/<hash>/             the hash of what the numbers depend on

Both are places for checkpoints (`checkpoints/store.py`) whose files `training/fitting/fit_state.py` writes.
They are removed when the stage has finished. The second is named by its content, not by a run, so that the
task needs no name of its run, which would keep Kubeflow from using its cache. Two runs that train the same
at once share it: the one whose states come later goes on without.
"""

import hashlib
import json
import logging
import os
import shutil
import sys
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

import torch

from cooper_rl.checkpoints.clearing import clear
from cooper_rl.checkpoints.identity import RunIdentity
from cooper_rl.checkpoints.manifest import LATEST, NAME
from cooper_rl.checkpoints.ownership import read_marker, staging_folders
from cooper_rl.checkpoints.reading import Found
from cooper_rl.checkpoints.store import CheckpointStore
from cooper_rl.checkpoints.versions import VERIFY_RM, numeric_versions, recorded_precision, say_differences
from cooper_rl.checkpoints.writer import CheckpointWriter
from cooper_rl.config.infrastructure import StorageConfig
from cooper_rl.config.root import Config
from cooper_rl.errors import StoppedError, WriteConflictError
from cooper_rl.machine.scratch import scratch_folder
from cooper_rl.records.files import read_report
from cooper_rl.records.written import MARKER, copy_written
from cooper_rl.run.stopping import StopRequest
from cooper_rl.storage.base import ObjectStore, files_below
from cooper_rl.storage.open import open_store
from cooper_rl.training.fitting.fit_state import PROGRESS, FitProgress, FitWatch

logger = logging.getLogger(__name__)

SUFFIX = ".unfinished"
FOLDER = "_fits"
"""Below storage.uri, beside the runs, none of which can have a name that begins so."""
BEST = "best"
SHARE = 20
"""A state may take a twentieth of the time."""


class FitCheckpoints(FitWatch):
    """The states of one training."""

    def __init__(
        self,
        store: ObjectStore,
        identity: RunIdentity,
        *,
        work: Path,
        fetched: Path,
        is_shared: bool,
        seconds: float,
        stop: StopRequest,
    ) -> None:
        """See `fit_checkpoints`, which makes it.

        Raises:
            CooperError: the place cannot be used, or belongs to another training.
        """
        remedy = f"remove {store.uri} to train anew, or choose another --verify-rm"
        # Its own retention: what the configuration says is meant for co-training, whose checkpoints stay.
        self._checkpoints = CheckpointStore(
            store, identity=identity, retention=StorageConfig(), remedy=remedy
        )
        self._store, self._identity = store, identity
        self._work, self._is_shared = work, is_shared
        self._seconds, self._stop = seconds, stop
        self._saved, self._took = time.monotonic(), 0.0
        self._has_lost = False
        # Every file is needed, whatever the step.
        self._found: Found | None = self._checkpoints.newest(fetched, last_step=sys.maxsize, logs=())
        self._lesson, self._step = 0, 0
        if self._found is not None:
            self._lesson = read_report(self._found.folder / PROGRESS, FitProgress).lesson
            self._step = self._found.manifest.step

    @property
    def recorded_precision(self) -> str | None:
        """The type in which the state that is continued computed on a CPU, if any."""
        if self._found is None:
            return None
        return recorded_precision(self._found.manifest.versions, VERIFY_RM)

    def open(self, folder: Path, device: torch.device, precision: str) -> None:
        """Before the training: where it keeps its best weights, which are put back, and what computes.

        Args:
            folder: Of the best weights.
            device: Of VerifyRM.
            precision: The type of its forward passes.

        Raises:
            DataError: the folder holds files of others.
            StorageError: states cannot be written.
        """
        self._folder, self._device, self._precision = folder, device, {VERIFY_RM: precision}
        self._checkpoints.prepare()
        if self._found is None:
            return
        logger.info("train_verify_rm continues from %s/%s", self._checkpoints.uri, self._found.name)
        said = say_differences(self._found.manifest.versions, numeric_versions(device, self._precision))
        if said is not None:
            logger.warning("%s: %s", self._found.name, said)
        if (self._found.folder / BEST).is_dir():
            # What lies there may be newer than the state, and is not to count twice.
            copy_written(self._found.folder / BEST, folder)

    def begun(self, lesson: int) -> Path | None:
        return self._found.folder if self._found is not None and lesson == self._lesson else None

    def is_done(self, lesson: int) -> bool:
        return lesson < self._lesson

    def update(self) -> AbstractContextManager[None]:
        return self._stop.step()

    def updated(self, update: int, write: Callable[[Path], None], *, has_best: bool) -> None:
        self._step += 1
        is_stopping, waited = self._stop.is_made, time.monotonic() - self._saved
        if is_stopping or not self._seconds or waited >= max(self._seconds, SHARE * self._took):
            self._save(write, has_best=has_best)
        if is_stopping:
            saved = (
                "another run that trains the same keeps its own state" if self._has_lost else "it is saved"
            )
            raise StoppedError(
                f"SIGTERM: stopped after update {update}; {saved}; start again with the same arguments to "
                "continue"
            )

    def finish(self) -> None:
        """After the stage's last file: what was kept is removed, and nothing else."""
        place = read_marker(self._store)
        if place is not None:
            for folder in staging_folders(self._work, place):
                shutil.rmtree(folder, ignore_errors=True)
        if not self._has_lost:
            clear(self._store, self._identity, keeps_mark=self._is_shared)
        if not self._is_shared:
            # A process killed between a folder and its first or last file left it empty.
            steps = [folder for folder in self._work.glob("step-*") if NAME.fullmatch(folder.name)]
            empty = [folder for step in steps for folder, _, _ in os.walk(step, topdown=False)]
            for folder in (*empty, self._work):
                with suppress(OSError):  # not empty: somebody else's files
                    Path(folder).rmdir()

    def _save(self, write: Callable[[Path], None], *, has_best: bool) -> None:
        if self._has_lost:
            return
        started = time.monotonic()

        def fill(draft: Path) -> None:
            write(draft)
            if has_best:
                _copy_best(self._folder, draft / BEST)

        try:
            with CheckpointWriter(self._checkpoints, self._work) as writer:
                # Waited for: a copy for a thread would be the model and its moments once more in memory.
                versions = numeric_versions(self._device, self._precision)
                writer.write(fill, step=self._step, versions=versions)
        except WriteConflictError as error:
            if not self._is_shared:
                raise
            self._has_lost = True
            logger.warning("%s. Another run trains the same: this one goes on without saving", error)
            if self._store.read(LATEST) is None:  # it has finished, and nobody would remove what we wrote
                clear(self._store, self._identity, keeps_mark=True)
        self._saved = time.monotonic()
        self._took = self._saved - started


@contextmanager
def fit_checkpoints(
    config: Config, verify_rm: Path, identity: RunIdentity, stop: StopRequest
) -> Generator[FitCheckpoints]:
    """The states of the training that a stage does.

    Args:
        config: Where they are kept and how often.
        verify_rm: The stage's output, beside which they are without a `storage.uri`.
        identity: What the numbers depend on.
        stop: Says whether the training is to end.

    Raises:
        ConfigError: they are of another training.
        DataError: no whole one is left.
        StorageError: the place cannot be used.
    """
    with scratch_folder() as scratch:
        uri = config.storage.uri
        if uri is None:
            place = str(work := verify_rm.with_name(verify_rm.name + SUFFIX))
        else:
            work, place = scratch, f"{uri.rstrip('/')}/{FOLDER}/{_name(identity)}"
        yield FitCheckpoints(
            open_store(config.storage, place),
            identity,
            work=work,
            fetched=scratch,
            is_shared=uri is not None,
            seconds=config.verify_rm.checkpoint_seconds,
            stop=stop,
        )


def _name(identity: RunIdentity) -> str:
    """A name from what differs from the defaults: a key that a later version adds changes no name."""
    return hashlib.sha256(json.dumps(sorted(identity.chosen.items())).encode()).hexdigest()


def _copy_best(source: Path, folder: Path) -> None:
    """Weights by link where the file system has them: `save_verify_rm` never writes into them again. The rest
    is copied, since a model's card is."""
    for name in files_below(source):
        if name == MARKER:
            continue
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if name.endswith(".safetensors"):
            with suppress(OSError):  # another file system, or one without links
                os.link(source / name, folder / name)
                continue
        shutil.copyfile(source / name, folder / name)
