"""The path `-`: what is piped into the program, as a file that may be read more than once."""

import shutil
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from cooper_rl.errors import DataError
from cooper_rl.machine.scratch import scratch_folder
from cooper_rl.records.parquet import MAGIC as PARQUET_MAGIC

NAME = Path("-")


@contextmanager
def standard_input() -> Generator[Path]:
    """Everything from standard input, in a file whose suffix says what it looks like.

    Raises:
        DataError: nothing is piped in.
    """
    if sys.stdin is None or sys.stdin.isatty():
        raise DataError("-: nothing is piped into standard input; give a file, or pipe one in")
    with scratch_folder() as folder:
        draft = folder / "stdin"
        with draft.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        yield draft.rename(draft.with_suffix(_suffix(draft)))


def _suffix(path: Path) -> str:
    with path.open("rb") as file:
        start = file.readline().removeprefix(b"\xef\xbb\xbf").lstrip()
    if start.startswith(PARQUET_MAGIC):
        return ".parquet"
    if not start or start[:1] in b"{[":
        return ".jsonl"
    return ".tsv" if b"\t" in start else ".csv"
