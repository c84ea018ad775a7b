"""Folders on this machine in which checkpoints are drafted; a killed run leaves one behind (row 13)."""

from pathlib import Path

from cooper_rl.checkpoints.ownership import MARKER
from cooper_rl.errors import DataError

STAGING = ".staging-"


def staging_folders(work: Path, place: str) -> list[Path]:
    """Folders below `work` in which runs of a place draft checkpoints; others of that name are not ours."""
    return [folder for folder in work.glob(f"{STAGING}*") if _read_mark(folder) == place]


def mark_staging(folder: Path, place: str) -> None:
    """Make a folder that `staging_folders` finds.

    Raises:
        DataError: the disk refuses.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / MARKER).write_text(place, encoding="utf-8")
    except OSError as error:
        raise DataError(f"{folder}: cannot be written ({error}); free space there") from error


def _read_mark(folder: Path) -> str | None:
    try:
        return (folder / MARKER).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return None
