"""Rows of CSV and TSV files: a header with the names of the columns, then texts.

Every value is a text, whatever it looks like; whoever reads a label or a number from it converts it. Row 1 is
the header, as in a spreadsheet.
"""

import csv
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from cooper_rl.errors import DataError
from cooper_rl.schema.texts import has_surrogates

SUFFIXES = (".csv", ".tsv")
DELIMITERS = ",;\t"
"""Delimiters of a .csv file: its header's most frequent one is taken."""
_NOT_UTF8 = "not UTF-8; save the file as UTF-8"


class TableRow(NamedTuple):
    """One row; `value` is None when it has not the header's number of fields."""

    row: int
    value: dict[str, str] | None
    text: str
    problem: str | None


def read_table(path: Path) -> Iterator[TableRow]:
    """Yield every row below the header that is not empty.

    Raises:
        DataError: there is no header, two of its columns have one name, or quotes are not closed.
    """
    csv.field_size_limit(sys.maxsize)
    # Bytes that are no UTF-8 become surrogates, which are found row by row.
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as lines:
        first = lines.readline()
        lines.seek(0)
        found = csv.reader(lines, delimiter=_delimiter(first, path), strict=True)
        number = 0
        try:
            header = _check_header(next(found, []), path)
            number = 1
            for number, fields in enumerate(found, start=2):
                if any(fields):
                    yield _read_row(number, fields, header)
        except csv.Error as error:
            raise DataError(
                f"{path}:{number + 1}: not a readable table ({error}); close every quote, and double a quote "
                "inside a field"
            ) from error


def _delimiter(header: str, path: Path) -> str:
    return "\t" if path.suffix.lower() == ".tsv" else max(DELIMITERS, key=header.count)


def _check_header(names: list[str], path: Path) -> list[str]:
    header = [name.strip() for name in names]
    if has_surrogates("".join(header)):
        raise DataError(f"{path}:1: {_NOT_UTF8}")
    twice = sorted({name for name in header if header.count(name) > 1})
    if not any(header) or twice:
        found = f"column {twice[0]!r} stands there twice" if twice else "the file is empty"
        raise DataError(
            f"{path}:1: no header ({found}); give every column a name of its own in the first row"
        )
    return header


def _read_row(number: int, fields: list[str], header: list[str]) -> TableRow:
    text = json.dumps(fields)
    if len(fields) != len(header):
        problem = (
            f"has {len(fields)} fields, and the header names {len(header)}; quote fields with delimiters"
        )
        return TableRow(number, None, text, problem)
    if has_surrogates("".join(fields)):
        return TableRow(number, None, text, _NOT_UTF8)
    value = dict(zip(header, fields, strict=True))
    return TableRow(number, value, json.dumps(value, ensure_ascii=False), None)
