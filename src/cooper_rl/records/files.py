"""Read rows of JSONL, Parquet, CSV and TSV; write JSONL and Parquet (an error names file, row and field).

Writes are atomic: a file is either absent, the old one, or complete. `records/layouts.py` translates foreign
layouts (GSM8K, MATH, veRL).
"""

import json
import os
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeVar

from pydantic import ValidationError

from cooper_rl.errors import ConfigError, DataError
from cooper_rl.machine.drafts import draft_beside
from cooper_rl.records.parquet import parquet_lines, read_parquet
from cooper_rl.records.tables import SUFFIXES as TABLE_SUFFIXES
from cooper_rl.records.tables import read_table
from cooper_rl.schema.data import Record, RejectedRow
from cooper_rl.schema.texts import replace_surrogates

R = TypeVar("R", bound=Record)

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
"""JSON's spelling of half of a character beyond the first 65,536."""
_ARRAY = re.compile(r"\[\s*\{")
"""How an array of rows begins."""


LINE_SUFFIXES = frozenset({".jsonl", ".json", ""})
SUFFIXES = (".jsonl", ".json", ".parquet", *TABLE_SUFFIXES)
"""Suffixes of the files that are read."""


class RawRow(NamedTuple):
    """One row of a file before it is understood; `value` is None when the line is not JSON."""

    file: str
    row: int
    value: Any
    text: str
    problem: str | None


def read_rows(path: Path, *, is_limited: bool = True) -> Iterator[RawRow]:
    """Yield every non-empty row of a file, in order: Parquet, CSV or TSV by suffix, any other as JSONL.

    Args:
        path: The file.
        is_limited: Refuse a Parquet file that is too large for readers that hold all its rows.

    Raises:
        DataError: the file is missing, a folder, or not readable as what its suffix says.
    """
    name = replace_surrogates(str(path))
    with _readable(path):
        if path.is_dir():
            raise DataError(f"{path}: is a folder; give one file in it")
        if not path.exists():
            raise DataError(f"{path}: no such file; check the path, or run the stage that writes it")
        if not path.is_file():
            raise DataError(
                f"{path}: is a pipe or device, whose rows cannot be read twice; save them to a file"
            )
        suffix = path.suffix.lower()
        if suffix == ".parquet":
            for number, value in enumerate(read_parquet(path, is_limited=is_limited), start=1):
                yield RawRow(name, number, value, json.dumps(value, default=str), None)
        elif suffix in TABLE_SUFFIXES:
            yield from (RawRow(name, *row) for row in read_table(path))
        else:
            _check_lines(path)
            yield from _read_jsonl(path)


def is_same_file(one: Path, other: Path) -> bool:
    """True if two paths name one file, in whatever spelling."""
    return os.path.realpath(one) == os.path.realpath(other)


@contextmanager
def _readable(path: Path) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error}); check its permissions and its disk") from error


def _check_lines(path: Path) -> None:
    """Refuse a file that no stage of ours wrote under this name; a damaged row is found where it is read."""
    if path.suffix.lower() in LINE_SUFFIXES:
        return
    with path.open("rb") as file:
        start = file.read(256).removeprefix(b"\xef\xbb\xbf").lstrip()
    if start and start[:1] not in b"{[":
        raise DataError(
            f"{path}: unknown format {path.suffix!r}; name JSON lines .jsonl, tables .csv or .tsv, and "
            "Parquet .parquet"
        )


def _read_jsonl(path: Path) -> Iterator[RawRow]:
    name = replace_surrogates(str(path))
    is_first = True
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
            except UnicodeDecodeError as error:
                yield RawRow(name, number, None, repr(line), f"not UTF-8: {error}")
                continue
            if not text:
                continue
            if is_first:
                _refuse_one_value(path, text)
                is_first = False
            try:
                value = json.loads(text)
                if _SURROGATE.search(text):  # half a pair, perhaps, which no file can hold
                    json.dumps(value, ensure_ascii=False).encode()
                yield RawRow(name, number, value, text, None)
            except (ValueError, RecursionError) as error:  # also integers and nesting beyond Python's limits
                yield RawRow(name, number, None, text, f"not JSON: {error}")


def _refuse_one_value(path: Path, start: str) -> None:
    """Refuse a file that is one JSON value, as pandas and `json.dump` write it."""
    if start == "[" or _ARRAY.match(start):
        raise DataError(f"{path}: a JSON array; write one JSON object per line (jq -c '.[]' does it)")
    if start == "{":
        raise DataError(f"{path}: a JSON object over several lines; write each on one line (jq -c . does it)")


def parse_row(row: RawRow, kind: type[R]) -> R:
    """Validate one row as a record.

    Raises:
        DataError: naming file:row, the field, what was found and what is expected.
    """
    if row.problem is not None:
        raise DataError(f"{row.file}:{row.row}: {row.problem}")
    try:
        return kind.model_validate(row.value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or "(row)"
        found = repr(first["input"])[:100]
        known = ", ".join(kind.model_fields)
        raise DataError(
            f"{row.file}:{row.row}: field {field!r}: {first['msg']}, found {found}; "
            f"a {kind.__name__} row has the fields {known}"
        ) from error


def reject(row: RawRow, reason: str) -> RejectedRow:
    """The record of a row that was set aside."""
    return RejectedRow(file=row.file, row=row.row, reason=reason, content=row.text[:500])


def read_records(path: Path, kind: type[R]) -> list[R]:
    """Read a file that one of our own stages wrote: every row must be good.

    Raises:
        DataError: at the first bad row, or when there is none at all.
    """
    records = [parse_row(row, kind) for row in read_rows(path)]
    if not records:
        raise DataError(f"{path}: no {kind.__name__} rows; the file is empty")
    return records


def check_unique(records: Sequence[Any], *, field: str, path: Path) -> None:
    """Refuse duplicate values of an identifying field.

    Raises:
        DataError: naming the first duplicate and both rows.
    """
    seen: dict[str, int] = {}
    for row, record in enumerate(records, start=1):
        value = getattr(record, field)
        if value in seen:
            raise DataError(
                f"{path}:{row}: duplicate {field} {value!r}, first seen in row {seen[value]}; make ids unique"
            )
        seen[value] = row


def write_records(path: Path, records: Iterable[Record]) -> int:
    """Write records as JSONL or Parquet by suffix, atomically and one by one; returns how many."""
    num_records = 0
    with record_writer(path) as write:
        for record in records:
            write(record)
            num_records += 1
    return num_records


@contextmanager
def record_writer(path: Path) -> Generator[Callable[[Record], None]]:
    """Writes each record that it is called with; the file takes its place when the block ends.

    Raises:
        DataError: the path is no place for a file, or the disk refuses the write.
    """
    with atomic_path(path) as draft:
        is_parquet = path.suffix.lower() == ".parquet"
        with parquet_lines(draft) if is_parquet else draft.open("w", encoding="utf-8") as lines:
            yield lambda record: _write_line(lines, record)


def _write_line(lines: IO[str], record: Record) -> None:
    lines.write(json.dumps(record.model_dump(mode="json"), ensure_ascii=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a text as UTF-8, atomically.

    Raises:
        DataError: the path is no place for a file, or the disk refuses the write.
    """
    with atomic_path(path) as draft:
        draft.write_text(text, encoding="utf-8")


def write_report(path: Path, report: Record) -> None:
    """Write one record as indented JSON, atomically."""
    write_text(path, report.model_dump_json(indent=2) + "\n")


def read_report(path: Path, kind: type[R]) -> R:
    """Read what `write_report` wrote.

    Raises:
        DataError: the file is missing or is not such a record.
    """
    with _readable(path):
        if not path.is_file():
            raise DataError(f"{path}: no such file; run the stage that writes this {kind.__name__}")
        content = path.read_bytes()
    try:
        return kind.model_validate_json(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or "(file)"
        raise DataError(f"{path}: not a {kind.__name__}: field {field!r}: {first['msg']}") from error


@contextmanager
def atomic_path(path: Path) -> Generator[Path]:
    """A draft path beside `path` that takes its place only when the block ends without an error.

    Raises:
        DataError: the path is no place for a file, or the disk refuses the write (full, no permission).
    """
    check_output(path)
    try:
        with draft_beside(path) as draft:
            yield draft.partial
            draft.partial.replace(path)
    except OSError as error:
        raise DataError(f"{path}: cannot be written ({error}); free space or choose another path") from error


def check_foreign(folder: Path, names: Iterable[str], *, mark: str) -> None:
    """Refuse a folder without the mark of a run of ours in which something has a name that a run writes.

    Raises:
        ConfigError: naming the first.
    """
    taken = [] if os.path.lexists(folder / mark) else [n for n in names if os.path.lexists(folder / n)]
    if taken:
        raise ConfigError(
            f"{folder / taken[0]}: would be overwritten, and no run has used this folder; move it away, or "
            "choose another --output"
        )


def check_output(path: Path, *, is_folder: bool = False) -> None:
    """Refuse a path before the work whose result could not be written there, or would destroy what is there.

    Raises:
        DataError: something of another kind has that name (a finished file would take the place of a device
            or a pipe), its folder cannot be written to, or its suffix promises a table.
    """
    if path == Path("-"):
        raise DataError("-: standard output is no place for a file that the next stage reads; give it a path")
    if path.suffix.lower() in TABLE_SUFFIXES and not is_folder:
        raise DataError(f"{path}: tables are read and not written; name it .jsonl or .parquet")
    wanted = "folder" if is_folder else "regular file"
    place = path if is_folder else path.parent
    try:
        while not place.exists():
            place = place.parent
        if path.exists() and not (path.is_dir() if is_folder else path.is_file()):
            reason = f"what has this name is no {wanted}"
        elif not (place.is_dir() and os.access(place, os.W_OK | os.X_OK)):
            reason = f"{place} is no folder that can be written to"
        else:
            return
    except OSError as error:
        raise DataError(f"{path}: cannot be written ({error}); choose another path") from error
    raise DataError(f"{path}: cannot be written ({reason}); free space or choose another path")
