"""Drafts beside an output, which takes their place only when they are complete; none outlives a killed run.

    <folder>/<name>.<tag>.partial        the draft, a file or a folder; a long name is cut
    <folder>/<name>.<tag>.old            a folder whose place it takes, for the moment between two renames
    <folder>/.cooper-rl-<tag>.draft      names the output; locked while its owner lives

Every new draft first removes those in its folder whose owner is gone. What no mark of ours names is never
touched, whatever it is called.
"""

import logging
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from cooper_rl.errors import DataError, StorageError
from cooper_rl.machine.locking import abandoned, lock

logger = logging.getLogger(__name__)

_START = "A draft of Cooper-RL, removed by its next start when its owner is gone, of "
_MARK = re.compile(r"\.cooper-rl-([0-9a-f]{8})\.draft")
_MARK_MODE = 0o600
"""An empty file of other rights is somebody's."""

_MAX_NAME_BYTES = 255 - len(".0123abcd.partial")
"""Bytes of an output's name that are left in its draft's: file systems take 255 in all."""


class Draft(NamedTuple):
    """The places of one output that is being written."""

    path: Path
    """The output."""
    partial: Path
    old: Path


def _draft(path: Path, tag: str) -> Draft:
    name = path.name
    while len(os.fsencode(name)) > _MAX_NAME_BYTES:
        name = name[:-1]
    # A tag: a file of a fixed name beside the output may be somebody's.
    return Draft(path, path.with_name(f"{name}.{tag}.partial"), path.with_name(f"{name}.{tag}.old"))


@contextmanager
def draft_beside(path: Path, *, remove_old: Callable[[Path], None] | None = None) -> Generator[Draft]:
    """Places for a draft in the output's folder, which is made; what stands there at the end is removed.

    Args:
        path: The output.
        remove_old: See `settle_drafts`.

    Raises:
        OSError: the folder cannot be made or written to.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    settle_drafts(path.parent, remove_old=remove_old)
    while True:
        tag = secrets.token_hex(4)
        mark = path.with_name(f".cooper-rl-{tag}.draft")
        if (handle := _open_mark(mark, name=path.name)) is not None:
            break
    draft = _draft(path, tag)
    try:
        yield draft
    finally:
        with suppress(OSError):
            if draft.old.is_dir() and not os.path.lexists(path):  # the draft could not be moved
                draft.old.rename(path)
            _remove(draft.partial)
        if not draft.old.exists():  # else the next start has something to settle
            mark.unlink(missing_ok=True)
        os.close(handle)


def _open_mark(mark: Path, *, name: str) -> int | None:
    """A handle of a new mark; None: another process took it for one that a killed process had left."""
    handle = os.open(mark, os.O_RDWR | os.O_CREAT | os.O_EXCL, _MARK_MODE)
    try:
        with suppress(StorageError):  # no locks: it stays without a text, and what it marks is never removed
            lock(handle, place=mark)
            os.write(handle, os.fsencode(f"{_START}{name}\n"))
        if mark.exists():
            return handle
    except BaseException:
        mark.unlink(missing_ok=True)
        os.close(handle)
        raise
    os.close(handle)
    return None


def settle_drafts(folder: Path, *, remove_old: Callable[[Path], None] | None = None) -> None:
    """Remove drafts of processes that ended without doing so; a replacement that was begun is completed.

    Args:
        folder: Of the outputs; it may be absent.
        remove_old: Removes a folder that a replaced output was, or raises DataError where that holds files of
            others; None: such folders stay until the next call that can.
    """
    for mark in sorted(folder.glob(".cooper-rl-*.draft")):
        with suppress(OSError, StorageError):  # removed meanwhile, of another user, or without locks
            _settle(mark, remove_old)


def replaced_folders(path: Path) -> list[Path]:
    """Folders that stood at this path, where a process was killed while it replaced them."""
    found: list[Path] = []
    for mark in path.parent.glob(".cooper-rl-*.draft"):
        with suppress(OSError):
            draft = _read(mark, mark.read_bytes()) if mark.is_file() else None
            if draft is not None and draft.path.name == path.name and draft.old.is_dir():
                found.append(draft.old)
    return found


def flush(path: Path) -> None:
    """Bring a file or folder to the disk. Before a rename: power lost after it must not leave a name without
    its content.

    Raises:
        OSError: the disk refuses.
    """
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _settle(mark: Path, remove_old: Callable[[Path], None] | None) -> None:
    with abandoned(mark) as content:
        if content == b"" and _MARK.fullmatch(mark.name) and stat.S_IMODE(mark.lstat().st_mode) == _MARK_MODE:
            mark.unlink()  # killed before it could name anything
            return
        draft = None if content is None else _read(mark, content)
        if draft is None or not mark.exists():
            return
        if draft.old.is_dir() and not _replace(draft, remove_old):
            return
        if os.path.lexists(draft.partial):
            _remove(draft.partial)
            logger.info("removed %s, which a run that was killed had left", draft.partial)
        mark.unlink()


def _replace(draft: Draft, remove_old: Callable[[Path], None] | None) -> bool:
    """Complete what was begun between two renames; True once the old folder is gone."""
    if not os.path.lexists(draft.path):
        # The old folder was moved away, so that the draft was complete.
        source = draft.partial if draft.partial.is_dir() else draft.old
        source.rename(draft.path)
        logger.warning("%s: put in place; a run was killed while it replaced it", draft.path)
    if remove_old is None:
        return not draft.old.is_dir()
    try:
        if draft.old.is_dir():
            remove_old(draft.old)
    except DataError as error:
        logger.warning("%s stays: %s", draft.old, error)
    return not draft.old.is_dir()


def _read(mark: Path, content: bytes) -> Draft | None:
    """The draft that a mark names; None: it is no mark of ours."""
    tag, text = _MARK.fullmatch(mark.name), os.fsdecode(content)
    name = text.removeprefix(_START).removesuffix("\n")
    if tag is None or text != f"{_START}{name}\n" or "/" in name or name in {"", ".", ".."}:
        return None
    return _draft(mark.with_name(name), tag[1])


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
