"""The rows to label: every usable completion with its problem, on disk, in the order of the file.

Problems and the ids seen so far are in a temporary index. Bad rows are set aside, in the order of the
two files, or of the one file that holds both.
"""

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from cooper_rl.domains.base import FindReferenceFault
from cooper_rl.errors import DataError
from cooper_rl.labels.spool import Spool
from cooper_rl.method.questions import question_key
from cooper_rl.records.batches import in_batches
from cooper_rl.records.files import is_same_file, parse_row, read_rows
from cooper_rl.records.one_file import Answered, stream_one_file
from cooper_rl.records.rejected import Usable, stream_usable
from cooper_rl.schema.data import Completion, Problem, Record, RejectedRow, VerifyExample

BATCH_ROWS = 4096
BATCH_CHARS = 16_000_000
"""Rows that are decided together: enough to keep a judge busy, and few enough to be in memory."""


class Row(Record):
    """A completion and the problem that it answers."""

    problem: Problem
    completion: Completion


class Inputs(NamedTuple):
    """The files that labelling reads."""

    problems: Path
    completions: Path
    frozen: Path | None


class Rows:
    """The usable rows, and those that were set aside."""

    def __init__(self, usable: Spool[Row], rejected: Spool[RejectedRow]) -> None:
        self.usable = usable
        self.rejected = rejected
        self.num_chars = 0
        """Of questions, reference answers and completions: what a judge would be shown."""

    def __len__(self) -> int:
        return len(self.usable)

    def batches(self) -> Iterator[list[Row]]:
        """All rows in order, as many at a time as fit in memory."""
        return in_batches(self.usable, max_items=BATCH_ROWS, max_chars=BATCH_CHARS, count_chars=_count_chars)


def collect_rows(
    inputs: Inputs,
    rows: Rows,
    index: sqlite3.Connection,
    *,
    find_reference_fault: FindReferenceFault,
    is_ours: Callable[[str], bool],
) -> None:
    """Read both files once, or the one that both inputs name, and fill `rows`.

    Args:
        inputs: Problems, completions, and examples whose questions may not be among the problems.
        rows: Empty.
        index: Empty.
        find_reference_fault: Why a reference answer cannot be used, or None.
        is_ours: Whether the rows of a question are to be labelled here; all are checked.

    Raises:
        DataError: no usable problem or completion, or a problem that has a question of `inputs.frozen`.
    """
    index.execute("CREATE TABLE problem (id TEXT PRIMARY KEY, place INTEGER, content TEXT)")
    index.execute("CREATE TABLE completion (id TEXT PRIMARY KEY, place INTEGER) WITHOUT ROWID")
    index.execute("CREATE TABLE frozen (question TEXT PRIMARY KEY) WITHOUT ROWID")
    for example in read_frozen(inputs.frozen):
        index.execute("INSERT OR IGNORE INTO frozen VALUES (?)", [question_key(example.question)])
    if is_same_file(inputs.problems, inputs.completions):
        found = _read_one_file(inputs, rows, index, find_reference_fault)
    else:
        _index_problems(inputs, rows, index, find_reference_fault)
        found = _join(inputs, rows, index)
    for row in found:
        if is_ours(row.problem.question):
            rows.usable.append(row)
            rows.num_chars += _count_chars(row)


def read_frozen(path: Path | None) -> Iterator[VerifyExample]:
    """Examples of an earlier run, one by one."""
    if path is not None:
        yield from (parse_row(row, VerifyExample) for row in read_rows(path, is_limited=False))


def _index_problems(
    inputs: Inputs, rows: Rows, index: sqlite3.Connection, find_reference_fault: FindReferenceFault
) -> None:
    def find_fault(found: Usable[Problem]) -> str | None:
        fault = find_reference_fault(found.record.reference_answer)
        if fault is not None:
            return f"field 'reference_answer': {fault}"
        return _find_duplicate(index, "problem", found.record.id)

    frozen_one: str | None = None
    for place, problem in stream_usable(
        inputs.problems, Problem, set_aside=rows.rejected.append, find_fault=find_fault
    ):
        index.execute("INSERT INTO problem VALUES (?, ?, ?)", [problem.id, place, problem.model_dump_json()])
        if frozen_one is None and _is_frozen(index, problem):
            frozen_one = problem.id
    if frozen_one is not None:
        raise _refuse_frozen(frozen_one, inputs)


def _join(inputs: Inputs, rows: Rows, index: sqlite3.Connection) -> Iterator[Row]:
    def find_fault(found: Usable[Completion]) -> str | None:
        if not _has(index, "problem", "id", found.record.problem_id):
            return (
                f"field 'problem_id': no usable problem {found.record.problem_id!r} in {inputs.problems}; "
                "give the problems that the completions were sampled for"
            )
        return _find_duplicate(index, "completion", found.record.id)

    for place, completion in stream_usable(
        inputs.completions, Completion, set_aside=rows.rejected.append, find_fault=find_fault
    ):
        index.execute("INSERT INTO completion VALUES (?, ?)", [completion.id, place])
        content = index.execute("SELECT content FROM problem WHERE id = ?", [completion.problem_id])
        yield Row(problem=Problem.model_validate_json(content.fetchone()[0]), completion=completion)


def _read_one_file(
    inputs: Inputs, rows: Rows, index: sqlite3.Connection, find_reference_fault: FindReferenceFault
) -> Iterator[Row]:
    def find_fault(found: Answered) -> str | None:
        fault = _find_duplicate(index, "completion", found.completion.id)
        return fault and f"{fault}, or rename the column where it names a problem"

    for place, problem, completion in stream_one_file(
        inputs.problems, find_reference_fault, set_aside=rows.rejected.append, find_fault=find_fault
    ):
        index.execute("INSERT INTO completion VALUES (?, ?)", [completion.id, place])
        if _is_frozen(index, problem):
            raise _refuse_frozen(problem.id, inputs)
        yield Row(problem=problem, completion=completion)


def _is_frozen(index: sqlite3.Connection, problem: Problem) -> bool:
    return _has(index, "frozen", "question", question_key(problem.question))


def _refuse_frozen(problem_id: str, inputs: Inputs) -> DataError:
    return DataError(
        f"{inputs.problems}: problem {problem_id!r} has a question of {inputs.frozen}; take the frozen "
        "questions out of the problems, as take-champion does"
    )


def _has(index: sqlite3.Connection, table: str, column: str, value: str) -> bool:
    return index.execute(f"SELECT 1 FROM {table} WHERE {column} = ?", [value]).fetchone() is not None


def _find_duplicate(index: sqlite3.Connection, table: str, value: str) -> str | None:
    found = index.execute(f"SELECT place FROM {table} WHERE id = ?", [value]).fetchone()
    return found and f"duplicate id {value!r}, first seen in row {found[0]}; make ids unique"


def _count_chars(row: Row) -> int:
    return len(row.problem.question) + len(row.problem.reference_answer) + len(row.completion.text)
