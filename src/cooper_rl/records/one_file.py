"""One file of questions, reference answers and completions, as problems and completions (rows 1 and 2).

`label_completions` reads it where both of its inputs name one file. Columns are those of `layouts.py`; `id`,
`model` (or `source`) and `finish_reason` are kept where a row has them.
"""

import hashlib
from pathlib import Path
from typing import Any, NamedTuple, get_args

from cooper_rl.domains.base import FindReferenceFault
from cooper_rl.errors import DataError
from cooper_rl.records.files import RawRow, parse_row, read_rows, reject
from cooper_rl.records.layouts import translate_attempt
from cooper_rl.schema.data import Completion, FinishReason, Problem, RejectedRow


class Answered(NamedTuple):
    """A completion and the problem that it answers."""

    problem: Problem
    completion: Completion


class OneFile(NamedTuple):
    """Rows that can be used, in file order, and the ones set aside."""

    rows: list[Answered]
    rejected: list[RejectedRow]


def read_one_file(path: Path, find_fault: FindReferenceFault) -> OneFile:
    """Read every row as a problem and its completion; rows with the same problem share it.

    Raises:
        DataError: the file cannot be read, or no row of it can be used, with the first reason.
    """
    rows: list[Answered] = []
    rejected: list[RejectedRow] = []
    seen: dict[str, int] = {}
    for row in read_rows(path):
        try:
            found = _read(row, path.stem, find_fault)
        except DataError as error:
            rejected.append(reject(row, str(error)))
            continue
        name = found.completion.id
        if seen.setdefault(name, row.row) == row.row:
            rows.append(found)
        else:
            reason = f"duplicate id {name!r}, first seen in row {seen[name]}; make ids unique"
            rejected.append(reject(row, f"{row.file}:{row.row}: {reason}"))
    if not rows:
        why = f"the first of {len(rejected)}: {rejected[0].reason}" if rejected else "the file is empty"
        raise DataError(f"{path}: no usable row with question, reference answer and completion; {why}")
    return OneFile(rows, rejected)


def _read(row: RawRow, stem: str, find_fault: FindReferenceFault) -> Answered:
    place = f"{row.file}:{row.row}"
    if row.problem is not None:
        raise DataError(f"{place}: {row.problem}")
    try:
        found = translate_attempt(row.value, find_fault)
    except DataError as error:
        raise DataError(f"{place}: {error}") from error
    problem_id = _problem_id(found.question, found.reference_answer)
    problem = Problem(
        id=problem_id, source=stem, question=found.question, reference_answer=found.reference_answer
    )
    ending = _kept(row.value, "finish_reason")
    value = {
        "id": _kept(row.value, "id") or f"{stem}-{row.row}",
        "problem_id": problem_id,
        "model": _kept(row.value, "model") or _kept(row.value, "source") or stem,
        "text": found.completion,
        "finish_reason": ending if ending in get_args(FinishReason) else "stop",
    }
    return Answered(problem, parse_row(row._replace(value=value), Completion))


def _kept(value: dict[str, Any], name: str) -> str:
    found = value.get(name)
    return str(found).strip() if isinstance(found, str | int) else ""


def _problem_id(question: str, reference_answer: str) -> str:
    """The same for the same problem in every file."""
    text = f"{question}\x1f{reference_answer}"
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
