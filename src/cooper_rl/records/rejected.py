"""Rows of an input file that a stage cannot use: set aside with file, row and reason, while the rest goes on.

On the command line they stand beside the report unless the stage is told where; a pipeline gives them an
artifact of their own, since Kubeflow stores nothing else. `layouts.py` reads foreign rows.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar, cast

from cooper_rl.errors import DataError
from cooper_rl.records.files import RawRow, check_output, parse_row, read_rows, reject, write_records
from cooper_rl.schema.data import Record, RejectedRow

logger = logging.getLogger(__name__)

R = TypeVar("R", bound=Record)
T = TypeVar("T")


class UsableRows(NamedTuple, Generic[R]):
    """Rows that can be used, in file order, and the ones set aside."""

    records: list[R]
    rejected: list[RejectedRow]


class Usable(NamedTuple, Generic[R]):
    """A row that can be used, and where it stands."""

    row: int
    record: R


def read_usable(
    path: Path, kind: type[R], *, translate: Callable[[RawRow], RawRow] = lambda row: row
) -> UsableRows[R]:
    """Read a file of which some rows may be bad.

    Args:
        path: JSONL, Parquet, CSV or TSV.
        kind: What a row is.
        translate: Makes a row of a foreign layout one of ours.

    Raises:
        DataError: the file cannot be read, or no row of it can be used, with the first reason.
    """
    rejected: list[RejectedRow] = []
    found = stream_usable(path, kind, set_aside=rejected.append, translate=translate, is_limited=True)
    return UsableRows([usable.record for usable in found], rejected)


def _of_known_columns(row: RawRow, kind: type[Record]) -> RawRow:
    """A person's file may have more columns than ours."""
    if not isinstance(row.value, dict):
        return row
    columns = cast("dict[str, Any]", row.value)
    return row._replace(value={name: columns[name] for name in columns if name in kind.model_fields})


def stream_usable(
    path: Path,
    kind: type[R],
    *,
    set_aside: Callable[[RejectedRow], object],
    find_fault: Callable[[Usable[R]], str | None] | None = None,
    translate: Callable[[RawRow], RawRow] = lambda row: row,
    is_limited: bool = False,
) -> Iterator[Usable[R]]:
    """Yield the usable rows of a file one by one.

    Args:
        path: JSONL, Parquet, CSV or TSV.
        kind: What a row is.
        set_aside: Called with every other row.
        find_fault: Why a well-formed record cannot be used, or None.
        translate: Makes a row of a foreign layout one of ours.
        is_limited: As in `read_rows`.

    Raises:
        DataError: the file cannot be read, or no row of it can be used, with the first reason.
    """

    def check(row: RawRow) -> Usable[R]:
        usable = Usable(row.row, parse_row(_of_known_columns(translate(row), kind), kind))
        refuse_fault(row, find_fault(usable) if find_fault is not None else None)
        return usable

    return stream_checked(
        path,
        check,
        set_aside=set_aside,
        is_limited=is_limited,
        wanted=f"{kind.__name__} row",
        unwanted=" bad rows",
    )


def stream_checked(
    path: Path,
    check: Callable[[RawRow], T],
    *,
    set_aside: Callable[[RejectedRow], object],
    is_limited: bool,
    wanted: str,
    unwanted: str = "",
) -> Iterator[T]:
    """Yield what `check` makes of the usable rows of a file, one by one.

    Args:
        path: JSONL, Parquet, CSV or TSV.
        check: Raises DataError for a row that cannot be used.
        set_aside: Called with every other row.
        is_limited: As in `read_rows`.
        wanted: Names a usable row in the error.
        unwanted: Follows the number of other rows there.

    Raises:
        DataError: the file cannot be read, or no row of it can be used, with the first reason.
    """
    is_usable = False
    num_rejected, first_reason = 0, ""
    for row in read_rows(path, is_limited=is_limited):
        try:
            found = check(row)
        except DataError as error:
            num_rejected, first_reason = num_rejected + 1, first_reason or str(error)
            set_aside(reject(row, str(error)))
        else:
            is_usable = True
            yield found
    if not is_usable:
        why = (
            f"the first of {num_rejected}{unwanted}: {first_reason}" if num_rejected else "the file is empty"
        )
        raise DataError(f"{path}: no usable {wanted}; {why}")


def refuse_fault(row: RawRow, fault: str | None) -> None:
    """Refuse a well-formed row that has a fault.

    Raises:
        DataError: it has one; names the place.
    """
    if fault is not None:
        raise DataError(f"{row.file}:{row.row}: {fault}")


def set_aside(report_path: Path, rows: Iterable[RejectedRow], *, rejected: Path | None = None) -> Path | None:
    """Write the rows to `rejected`, or to `<report>.rejected.jsonl`; one warning names the file.

    Without rows `rejected` is an empty file; the other is removed where an earlier run left it.

    Raises:
        DataError: the file beside the report holds something else, or cannot be written.
    """
    path = rejected or report_path.with_name(report_path.name + ".rejected.jsonl")
    if rejected is None:
        _check_ours(path)
    rest = iter(rows)
    first = next(rest, None)
    if first is None:
        if rejected is None:
            path.unlink(missing_ok=True)
            return None
        write_records(path, [])
        return path
    num_rows = write_records(path, chain([first], rest))
    logger.warning("%d rows set aside, see %s; the first: %s", num_rows, path, first.reason)
    return path


def _check_ours(path: Path) -> None:
    """Nobody named this file, so that another content is not ours to replace."""
    check_output(path)  # a folder, a pipe, a name that is too long
    if path.is_symlink() and not path.exists():
        raise DataError(
            f"{path}: is a link to nothing, which this would replace; move it, or give --rejected or another "
            "--report"
        )
    try:
        for row in read_rows(path) if path.is_file() else ():
            parse_row(row, RejectedRow)
    except DataError as error:
        raise DataError(
            f"{path}: holds other rows than those that a stage set aside; move it, or give --rejected or "
            "another --report"
        ) from error
