"""Rows of an input file that a stage cannot use: set aside with file, row and reason, while the rest goes on.

On the command line they stand beside the report unless the stage is told where; a pipeline gives them an
artifact of their own, since Kubeflow stores nothing else. Deliberately left out: foreign layouts, which
`collect_problems.py` reads.
"""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from cooper_rl.errors import DataError
from cooper_rl.records.files import RawRow, parse_row, read_rows, reject, write_records
from cooper_rl.schema.data import Record, RejectedRow

logger = logging.getLogger(__name__)

R = TypeVar("R", bound=Record)


class UsableRows(NamedTuple, Generic[R]):
    """Rows that can be used, in file order, and the ones set aside."""

    records: list[R]
    rejected: list[RejectedRow]


def read_usable(
    path: Path,
    kind: type[R],
    *,
    unique: str | None = None,
    find_fault: Callable[[R], str | None] | None = None,
    translate: Callable[[RawRow], RawRow] = lambda row: row,
) -> UsableRows[R]:
    """Read a file of which some rows may be bad; of rows with the same `unique` field the first one stays.

    Args:
        path: JSONL or Parquet.
        kind: What a row is.
        unique: Name of the identifying field.
        find_fault: Why a well-formed record cannot be used, or None.
        translate: Makes a row of a foreign layout one of ours.

    Raises:
        DataError: the file cannot be read, or no row of it can be used, with the first reason.
    """
    usable: list[R] = []
    rejected: list[RejectedRow] = []
    seen: dict[object, int] = {}
    for row in read_rows(path):
        try:
            record = parse_row(translate(row), kind)
        except DataError as error:
            rejected.append(reject(row, str(error)))
            continue
        fault = find_fault(record) if find_fault is not None else None
        if unique is not None and fault is None:
            value = getattr(record, unique)
            if value in seen:
                fault = f"duplicate {unique} {value!r}, first seen in row {seen[value]}; make ids unique"
            seen.setdefault(value, row.row)
        if fault is None:
            usable.append(record)
        else:
            rejected.append(reject(row, f"{row.file}:{row.row}: {fault}"))
    if not usable:
        why = (
            f"the first of {len(rejected)} bad rows: {rejected[0].reason}"
            if rejected
            else "the file is empty"
        )
        raise DataError(f"{path}: no usable {kind.__name__} row; {why}")
    return UsableRows(usable, rejected)


def set_aside(report_path: Path, rows: Sequence[RejectedRow], *, rejected: Path | None = None) -> Path | None:
    """Write the rows to `rejected`, or to `<report>.rejected.jsonl`; one warning names the file.

    Without rows `rejected` is an empty file; the other is removed where an earlier run left it.
    """
    path = rejected or report_path.with_name(report_path.name + ".rejected.jsonl")
    if rejected is None and not rows:
        path.unlink(missing_ok=True)
        return None
    write_records(path, rows)
    if not rows:
        return path
    logger.warning("%d rows set aside, see %s; the first: %s", len(rows), path, rows[0].reason)
    return path
