"""All runs of a server: one VerifyRM, journal and folder each, with one start and one configuration."""

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from cooper_rl.api.reward_run import RewardRun, RewardSettings
from cooper_rl.config.serve import LearnConfig
from cooper_rl.errors import DataError
from cooper_rl.machine.locking import lock
from cooper_rl.service.numbers import RewardNumbers
from cooper_rl.service.requests import ConflictError
from cooper_rl.service.run import ServedRun

NAME = re.compile(r"[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?")
LOCK = "lock"
"""The file that says that a server uses the folder; no run has its name."""


@dataclass(frozen=True)
class Start:
    """The VerifyRM and the settings that every run begins with."""

    verify_rm: Path
    settings: RewardSettings
    state: Path
    """Folder with a folder for every run."""


def take_state(folder: Path) -> IO[str]:
    """Lock the folder of the runs until the file is closed.

    Raises:
        DataError: another server uses it, or it cannot be written to.
    """
    place = folder / LOCK
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # To open a pipe would wait for its reader, and what a link names must not be emptied.
        if place.is_symlink() or (place.exists() and not place.is_file()):
            raise DataError(
                f"--state {folder}: {place} is no regular file; remove it, or give another folder"
            )
        handle = place.open("w")
    except OSError as error:
        raise DataError(f"--state {folder}: cannot be written to ({error}); give another folder") from error
    if not lock(handle.fileno(), place=folder, wait=False):
        handle.close()
        raise DataError(f"--state {folder}: another server uses this folder; end it, or give another folder")
    return handle


class ServedRuns:
    """Opens the runs whose folders are there, and others when they are first asked for."""

    def __init__(
        self, start: Start, config: LearnConfig, numbers: RewardNumbers, *, held: IO[str] | None = None
    ) -> None:
        """Take the folder for this process, unless the caller has (`held`, of `take_state`).

        Raises:
            DataError: another server uses it, or it cannot be written to.
        """
        self._start = start
        self._config = config
        self._numbers = numbers
        self._runs: dict[str, ServedRun] = {}
        self._lock = held or take_state(start.state)
        numbers.waiting.set_function(lambda: sum(run.num_waiting for run in self.all()))
        folders = sorted(path for path in start.state.iterdir() if path.is_dir())
        # A volume has folders of its own (lost+found, .snapshot).
        names = [folder.name for folder in folders if NAME.fullmatch(folder.name)]
        if len(names) > config.max_runs:
            raise DataError(
                f"{start.state}: has {len(names)} runs ({', '.join(names)}) and max_runs={config.max_runs}; "
                "move folders away, or raise max_runs"
            )
        for name in names:
            self._open(name)

    def all(self) -> list[ServedRun]:
        """In the order of their opening."""
        return list(self._runs.values())

    @property
    def is_ready(self) -> bool:
        """True if every run that was there takes requests, or has stopped."""
        return all(run.opened.done() for run in self.all())

    def get(self, name: str) -> ServedRun:
        """The run of this name, which is begun if there is none.

        Raises:
            DataError: a name that cannot be a folder's.
            ConflictError: there are `max_runs` others.
        """
        if name not in self._runs:
            if not NAME.fullmatch(name) or name == LOCK:
                raise DataError(
                    f"run {name[:80]!r}: a name has 1 to 63 characters a-z, 0-9, '.', '_', '-', letters or "
                    f"digits at both ends, and is not {LOCK!r}"
                )
            if len(self._runs) >= self._config.max_runs:
                raise ConflictError(
                    f"run {name!r}: the server keeps max_runs={self._config.max_runs} already: "
                    f"{', '.join(self._runs)}; use one of them, move the folder of one away while the server "
                    "is down, or raise max_runs"
                )
            self._open(name)
        return self._runs[name]

    def close(self, *, seconds: float) -> bool:
        """Finish and save all runs at the same time; whether all did in time."""

        # Side by side: one after the other, each would spend the grace period of the next.
        with ThreadPoolExecutor(max(1, len(self._runs))) as threads:
            ended = list(threads.map(lambda run: run.close(seconds=seconds), self.all()))
        self._lock.close()
        return all(ended)

    def _open(self, name: str) -> None:
        self._runs[name] = ServedRun(
            name, self._start.state / name, self._config, make=self._make, numbers=self._numbers
        )

    def _make(self, folder: Path) -> RewardRun:
        return RewardRun(self._start.verify_rm, self._start.settings, folder=folder)
