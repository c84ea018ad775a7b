"""Checkpoints written while training goes on (row 13): the step waits for the copy out of the models only.

One checkpoint is under way at a time; a second one waits for it, so that memory holds one copy.
`checkpoints/state.py` writes the files, and `checkpoints/store.py` makes them visible in order.
"""

import logging
import secrets
import shutil
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from cooper_rl.checkpoints.ownership import MARKER, STAGING, mark_staging, staging_folders
from cooper_rl.checkpoints.state import (
    TrainingState,
    save_tokenizers,
    take_snapshot,
    write_snapshot,
)
from cooper_rl.checkpoints.store import CheckpointStore, remove_folder
from cooper_rl.checkpoints.versions import POLICY, VERIFY_RM, numeric_versions
from cooper_rl.errors import CooperError, DataError, WriteConflictError
from cooper_rl.machine.daemon_pool import DaemonPool

logger = logging.getLogger(__name__)

SECONDS_OF_SILENCE = 1.0
"""That somebody is held up by a checkpoint before the log says so."""


class CheckpointWriter:
    """Writes checkpoints in a thread of its own; a context manager that waits for the last one.

    An error of the thread is raised by the next `save`, `check` or the end of the context. Ctrl-C while the
    context waits gives the last checkpoint up; what was written of it is removed by the next start.
    """

    def __init__(self, checkpoints: CheckpointStore, work: Path) -> None:
        """`work` is a folder on this machine where files are written before they are stored."""
        self._checkpoints = checkpoints
        self._work = work
        self._staging = work / f"{STAGING}{secrets.token_hex(4)}"
        # One thread, so that checkpoints become visible in the order of their steps.
        self._thread = DaemonPool(1, thread_name_prefix="checkpoint")
        self._under_way: Future[None] | None = None
        self._step = 0
        """Of the checkpoint under way."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        is_given_up = False
        try:
            # What was begun is finished, also when training failed: it is whole and consistent.
            self._finish("; Ctrl-C gives it up")
        except Exception:
            if error is None:
                raise
            logger.exception("the last checkpoint was not written")
        except KeyboardInterrupt:
            is_given_up = True
            logger.warning(
                "the checkpoint of step %d is given up; unless it is complete, the one before it counts",
                self._step,
            )
            raise
        finally:
            self._thread.shutdown(wait=not is_given_up)
            # The folder is the thread's: it must have ended before that is removed.
            if not is_given_up:
                shutil.rmtree(self._staging, ignore_errors=True)

    def save(
        self,
        state: TrainingState,
        *,
        score: float | None,
        is_copy: bool = False,
        back_to: Sequence[int] = (),
    ) -> float:
        """Copy the state and begin to write it; returns the seconds that the caller was held up.

        Args:
            state: what the checkpoint holds.
            score: see `CheckpointEntry`.
            is_copy: its tensors are copies, or never change; they are not copied again.
            back_to: see `CheckpointStore.publish`.

        Raises:
            StorageError, DataError: the checkpoint before could not be written.
        """
        started = time.perf_counter()
        self.finish()
        tokenizers = self._staging / "tokenizers"
        if not tokenizers.is_dir():
            mark_staging(self._staging, self._checkpoints.mark())
            save_tokenizers(state, tokenizers)
        # The one part that training waits for: from here on the thread reads copies that no step changes.
        snapshot = take_snapshot(state, is_copy=is_copy)

        def fill(draft: Path) -> None:
            shutil.copytree(tokenizers, draft)
            write_snapshot(snapshot, draft)

        precision = {POLICY: state.policy.compute, VERIFY_RM: state.verify_rm.compute}
        versions = numeric_versions(state.policy.device, precision)
        self._step = state.step
        self._under_way = self._thread.submit(self._write, fill, state.step, score, versions, back_to)
        return time.perf_counter() - started

    def write(self, fill: Callable[[Path], None], *, step: int, versions: dict[str, str]) -> None:
        """Write a checkpoint of any other kind, and wait for it.

        Args:
            fill: Makes a folder that is absent, with the checkpoint's files.
            step: The checkpoint's.
            versions: See `numeric_versions`.

        Raises:
            StorageError, DataError: it could not be written.
        """
        self.finish()
        mark_staging(self._staging, self._checkpoints.mark())
        self._step = step
        self._under_way = self._thread.submit(self._write, fill, step, None, versions, ())
        self.finish()

    def check(self) -> None:
        """Raise now what went wrong in the thread, if it did."""
        if self._under_way is not None and self._under_way.done():
            self.finish()

    def finish(self) -> None:
        """Wait for the checkpoint that is under way; the log says so if that takes long.

        Raises:
            StorageError, DataError: it could not be written.
        """
        self._finish()

    def _finish(self, remedy: str = "") -> None:
        under_way = self._under_way
        if under_way is None:
            return
        if wait([under_way], SECONDS_OF_SILENCE).not_done:
            logger.warning(
                "waiting until the checkpoint of step %d is in %s%s%s",
                self._step,
                self._checkpoints.uri,
                self._checkpoints.patience,
                remedy,
            )
            wait([under_way])
        # Only now: after Ctrl-C in the lines above the end of the context waits. Yet before the result: its
        # error is raised once.
        self._under_way = None
        under_way.result()

    def _write(
        self,
        fill: Callable[[Path], None],
        step: int,
        score: float | None,
        versions: dict[str, str],
        back_to: Sequence[int],
    ) -> None:
        draft = self._staging / f"step-{step:06d}"
        try:
            # Of a try at this step that failed: `copytree` takes no folder that is there.
            remove_folder(draft)
            fill(draft)
            # Of killed runs of this place. A run that lives began before we publish, so it has lost then.
            place = self._checkpoints.mark()
            others = [each for each in staging_folders(self._work, place) if each != self._staging]
            self._checkpoints.publish(
                draft,
                step=step,
                score=score,
                versions=versions,
                back_to=back_to,
            )
            for other in others:
                self._remove(other)
            remove_folder(draft)
        except (OSError, CooperError) as error:
            if not (self._staging / MARKER).is_file():  # what is written makes the folder itself again
                raise WriteConflictError(
                    f"{self._staging}: somebody else removed it; two runs use this folder: stop one of them"
                ) from error
            if not isinstance(error, OSError):
                raise
            raise DataError(
                f"{draft}: the checkpoint cannot be written ({error}); free space or choose another folder. "
                "The previous checkpoint is unharmed"
            ) from error

    def _remove(self, other: Path) -> None:
        """Moved first: a process that lives sees all of it go at once. It may be removing it itself."""
        moved = self._staging / other.name
        with suppress(FileNotFoundError):
            other.rename(moved)
        shutil.rmtree(moved, ignore_errors=True)
