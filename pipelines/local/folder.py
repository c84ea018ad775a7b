"""The output folder of local runs: one process uses it at a time, and the run in it is found again.

    <output>/in-use.json                            who uses the folder; locked while that is so
    <output>/end-to-end-2026-11-23-14-05-09-123456/ one run: a folder for each task, and
        run.json                                    what was asked for, and whether it finished

A repeated command goes on in the folder of its run, so that co-training finds its checkpoints there.
"""

import os
import re
import socket
import uuid
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import psutil

from cooper_rl.errors import ConfigError, DataError
from cooper_rl.machine.locking import lock
from cooper_rl.records.files import check_foreign, read_report, write_report
from cooper_rl.schema.data import Record

IN_USE = "in-use.json"
RUN = "run.json"
TOKEN = "COOPER_RL_LOCAL_RUN"
"""Environment variable of every process of a run; a killed run's are found by it."""

_KILL_SECONDS = 10.0


class Holder(Record):
    """The process that uses a folder, or was the last to."""

    pid: int
    host: str
    token: str
    """Value of `TOKEN` in the environment of its processes, and label of its containers."""
    has_containers: bool
    place: str | None = None
    """The folder; None: a version wrote it that did not say. In a copy of the folder it is another one."""


class RunRecord(Record):
    """A run in its folder."""

    key: str
    """Hash of the compiled pipeline, its arguments, and the state of code, preset and source files."""
    is_finished: bool = False


class Lease(NamedTuple):
    """A folder that this process alone uses."""

    token: str
    before: Holder | None
    """The process that had it last, if it did not give it back."""


@contextmanager
def leased(output: Path, *, names: Sequence[str] = (), has_containers: bool) -> Generator[Lease]:
    """Use a folder, which is made, alone while the block runs.

    Args:
        output: The folder.
        names: Of the files that a run writes there.
        has_containers: Whether the run has some.

    Raises:
        ConfigError: another process uses it, it cannot be written to, or something else has one of the names.
        StorageError: its file system has no locks.
    """
    path = output / IN_USE
    check_foreign(output, names, mark=IN_USE)
    with _writable(output):
        output.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        before = _take(handle, output)
        for name in names:
            if (output / name).is_dir():
                raise ConfigError(f"{output / name}: is a folder, and a run writes a file here; move it away")
        token = uuid.uuid4().hex
        holder = Holder(
            pid=os.getpid(),
            host=socket.gethostname(),
            token=token,
            has_containers=has_containers,
            place=str(output),
        )
        with _writable(output):
            _write(handle, holder.model_dump_json().encode())
        try:
            yield Lease(token, before)
        finally:
            _write(handle, b"")
    finally:
        os.close(handle)


def end_processes(holder: Holder) -> list[int]:
    """End what is still there of a run whose first process was killed; returns the process ids."""
    if holder.host != socket.gethostname():
        return []
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):  # another user's, or it ended meanwhile
            if process.pid != os.getpid() and process.environ().get(TOKEN) == holder.token:
                process.kill()
                found.append(process)
    psutil.wait_procs(found, timeout=_KILL_SECONDS)
    return sorted(process.pid for process in found)


def run_folders(output: Path, pipeline: str) -> list[Path]:
    """The folders of a pipeline's runs, oldest first; each is named after the time of its start."""
    form = re.compile(rf"{re.escape(pipeline)}-\d{{4}}(?:-\d\d){{5}}-\d+")
    return sorted(path for path in output.glob(f"{pipeline}-*") if form.fullmatch(path.name))


def open_run(output: Path, pipeline: str, key: str, *, repeats: bool) -> tuple[Path, RunRecord | None]:
    """The folder of the newest run with this key and its record, or the name of a new folder and None.

    With `repeats` a finished run is not gone on with: its command asks for a new one.
    """
    for folder in reversed(run_folders(output, pipeline)):
        with suppress(DataError):  # of an earlier version, or not a run
            record = read_report(folder / RUN, RunRecord)
            if record.key == key and not (repeats and record.is_finished):
                return folder, record
    return output / f"{pipeline}-{datetime.now():%Y-%m-%d-%H-%M-%S-%f}", None


def unfinished_run(output: Path, pipeline: str) -> Path | None:
    """The folder of the newest run, whatever its key, if that one did not finish."""
    for folder in reversed(run_folders(output, pipeline)):
        with suppress(DataError):
            return None if read_report(folder / RUN, RunRecord).is_finished else folder
    return None


def note_run(folder: Path, record: RunRecord) -> None:
    """Write a run's record into its folder, which is made.

    Raises:
        DataError: the disk refuses.
    """
    write_report(folder / RUN, record)


def started_at(folder: Path) -> str:
    """When a run began, for people."""
    day, hour, minute = re.findall(r"-(\d{4}-\d\d-\d\d)-(\d\d)-(\d\d)", folder.name)[0]
    return f"{day} {hour}:{minute}"


@contextmanager
def _writable(output: Path) -> Generator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror
        raise ConfigError(
            f"{output}: cannot be written: {reason}; free space or give another folder"
        ) from error


def _take(handle: int, output: Path) -> Holder | None:
    is_free = lock(handle, place=output, wait=False)
    holder = _read_holder(handle)
    if not is_free:
        who = f"process {holder.pid} on {holder.host}" if holder else "another process"
        raise ConfigError(
            f"{output}: {who} runs a pipeline in this folder; wait for it, end it, or give another --output"
        )
    if holder is None and os.fstat(handle).st_size:
        raise ConfigError(
            f"{output / IN_USE}: no run wrote this file, which a run would overwrite; move it away, or give "
            "another --output"
        )
    # A copied folder names the run of the original, which may be under way.
    return holder if holder is None or holder.place in (None, str(output)) else None


def _read_holder(handle: int) -> Holder | None:
    with suppress(ValueError):  # empty, or just being written
        return Holder.model_validate_json(os.pread(handle, 10_000, 0))
    return None


def _write(handle: int, content: bytes) -> None:
    os.pwrite(handle, content, 0)  # first: a full disk may refuse it, and what is there stays
    os.ftruncate(handle, len(content))
