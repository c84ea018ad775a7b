"""Folders that a stage writes as a whole, such as a model's: replaced only where nothing else lies in them.

    <folder>/.cooper-rl-files    path -> sha256 of every file that was written

What was added or changed since, or was there before, belongs to somebody else.
"""

import hashlib
import os
import shutil
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path

from cooper_rl.errors import DataError
from cooper_rl.machine.drafts import Draft, draft_beside, settle_drafts
from cooper_rl.records.files import read_report, write_report
from cooper_rl.schema.data import Record

MARKER = ".cooper-rl-files"


class WrittenFiles(Record):
    """The files of ours in one folder."""

    sha256: dict[str, str]


def mark_written(folder: Path) -> None:
    """Note every file that is in the folder now as written by us."""
    own = [name for name in _entries(folder) if name != MARKER and not (folder / name).is_dir()]
    write_report(folder / MARKER, WrittenFiles(sha256={name: file_sha256(folder / name) for name in own}))


def copy_written(source: Path, folder: Path) -> None:
    """Put a copy of a folder in the place of what we wrote there before; the copy is ours.

    Raises:
        DataError: the place holds something else; nothing is changed.
    """
    with draft_beside(folder, remove_old=remove_written) as draft:
        # Only now: a replacement that a killed run had begun was completed a moment ago.
        check_replaceable(folder)
        shutil.copytree(source, draft.partial)
        put_in_place(draft)


def put_in_place(draft: Draft) -> None:
    """Let a complete folder take the place of the one that `check_replaceable` let pass; it is ours.

    Raises:
        OSError: the disk refuses.
    """
    mark_written(draft.partial)
    if draft.path.exists():
        draft.path.rename(draft.old)
    # Two renames and no copy: between them nothing stands there, which a reader takes for missing and not for
    # damaged. The next start completes them (`machine/drafts.py`).
    draft.partial.rename(draft.path)
    with suppress(DataError, OSError):  # somebody put something into it meanwhile: it stays
        remove_written(draft.old)


def rewrite(folder: Path, name: str, text: str) -> None:
    """Write a file of the folder anew. A folder without a mark stays without.

    Raises:
        OSError: the disk refuses.
    """
    if not (folder / MARKER).is_file():
        (folder / name).write_text(text, encoding="utf-8")
        return
    known = read_report(folder / MARKER, WrittenFiles).sha256
    with draft_beside(folder, remove_old=remove_written) as draft:
        draft.partial.write_text(text, encoding="utf-8")
        # Killed anywhere, it leaves no file that differs from the mark: nobody could replace the folder.
        (folder / name).unlink(missing_ok=True)
        write_report(folder / MARKER, WrittenFiles(sha256={**known, name: file_sha256(draft.partial)}))
        draft.partial.replace(folder / name)


def check_replaceable(folder: Path, *, besides: str = MARKER) -> None:
    """Refuse a place that holds anything that we did not write; an absent or empty one is free.

    Args:
        folder: the place.
        besides: a file that the caller has looked at.

    Raises:
        DataError: names what is there.
    """
    settle_drafts(folder)  # of a mark that was being written when its process was killed
    foreign = _foreign(folder, besides)
    if foreign is not None:
        raise DataError(
            f"{foreign}: was not written by Cooper-RL, or changed since, and {folder} would be replaced; "
            "move it away, or choose another folder"
        )


def check_own(path: Path, kind: type[Record]) -> None:
    """Refuse a file in the place of one of ours; an absent one is fine.

    Raises:
        DataError: it is not such a record.
    """
    if not os.path.lexists(path):
        return
    try:
        read_report(path, kind)
    except DataError as error:
        raise DataError(
            f"{path}: would be replaced, and is no {kind.__name__} of Cooper-RL; move it away, or choose "
            "another folder"
        ) from error


def remove_written(folder: Path) -> None:
    """Remove a folder that `check_replaceable` lets pass.

    Raises:
        DataError: it holds something else; nothing is removed.
    """
    check_replaceable(folder)
    names = _entries(folder) if folder.is_dir() else []
    for name in reversed(names):
        if (folder / name).is_dir():
            (folder / name).rmdir()
        else:
            (folder / name).unlink()
    if folder.is_dir():
        folder.rmdir()


def _foreign(folder: Path, besides: str) -> Path | None:
    """The first thing in the place that is not ours."""
    if not os.path.lexists(folder):
        return None
    if folder.is_symlink() or not folder.is_dir():
        return folder
    marker = folder / MARKER
    try:
        own = read_report(marker, WrittenFiles).sha256 if os.path.lexists(marker) else {}
    except DataError:
        return marker
    for name in _entries(folder):
        if name in {MARKER, besides}:
            continue
        path = folder / name
        if path.is_dir() and not path.is_symlink():
            is_own = any(each.startswith(f"{name}/") for each in own)
        else:
            # Only what the mark names is read: a pipe would be waited for, and a foreign file may be huge.
            is_own = (
                name in own and path.is_file() and not path.is_symlink() and own[name] == file_sha256(path)
            )
        if not is_own:
            return path
    return None


def _entries(folder: Path) -> list[str]:
    """Relative paths of everything below, folders before what is in them; links are not followed."""
    return sorted(_walk(folder, ""))


def _walk(folder: Path, start: str) -> Generator[str]:
    for entry in os.scandir(folder):
        yield f"{start}{entry.name}"
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(Path(entry.path), f"{start}{entry.name}/")


def file_sha256(path: Path) -> str:
    """The hash of a file, as `sha256sum` shows it."""
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
