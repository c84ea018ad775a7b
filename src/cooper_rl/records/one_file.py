"""One file of questions, reference answers and completions, as problems and completions (rows 1 and 2).

`label_completions` reads it where both of its inputs name one file. Columns are those of `layouts.py`; `id`,
`model` (or `source`) and `finish_reason` are kept where a row has them.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, get_args

from cooper_rl.domains.base import FindReferenceFault
from cooper_rl.errors import DataError
from cooper_rl.method.questions import problem_id
from cooper_rl.records.files import RawRow, parse_row
from cooper_rl.records.layouts import translate_attempt
from cooper_rl.records.rejected import refuse_fault, stream_checked
from cooper_rl.schema.data import Completion, FinishReason, Problem, RejectedRow
from cooper_rl.schema.texts import replace_surrogates


class Answered(NamedTuple):
    """A completion and the problem that it answers, and the row where they stand."""

    row: int
    problem: Problem
    completion: Completion


def stream_one_file(
    path: Path,
    find_reference_fault: FindReferenceFault,
    *,
    set_aside: Callable[[RejectedRow], object],
    find_fault: Callable[[Answered], str | None],
) -> Iterator[Answered]:
    """Yield every usable row as a problem and its completion; rows with the same problem share its id.

    Args:
        path: The file.
        find_reference_fault: Why a reference answer cannot be used, or None.
        set_aside: Called with every other row.
        find_fault: Why a well-formed row cannot be used, or None.

    Raises:
        DataError: the file cannot be read, or no row of it can be used, with the first reason.
    """

    def check(row: RawRow) -> Answered:
        found = _read(row, replace_surrogates(path.stem), find_reference_fault)
        refuse_fault(row, find_fault(found))
        return found

    return stream_checked(
        path,
        check,
        set_aside=set_aside,
        is_limited=False,
        wanted="row with question, reference answer and completion",
    )


def _read(row: RawRow, stem: str, find_fault: FindReferenceFault) -> Answered:
    place = f"{row.file}:{row.row}"
    if row.problem is not None:
        raise DataError(f"{place}: {row.problem}")
    try:
        found = translate_attempt(row.value, find_fault)
    except DataError as error:
        raise DataError(f"{place}: {error}") from error
    name = problem_id(found.question, found.reference_answer)
    problem = Problem(id=name, source=stem, question=found.question, reference_answer=found.reference_answer)
    ending = _kept(row.value, "finish_reason")
    value = {
        "id": _kept(row.value, "id") or f"{stem}-{row.row}",
        "problem_id": name,
        "model": _kept(row.value, "model") or _kept(row.value, "source") or stem,
        "text": found.completion,
        "finish_reason": ending if ending in get_args(FinishReason) else "stop",
    }
    return Answered(row.row, problem, parse_row(row._replace(value=value), Completion))


def _kept(value: dict[str, Any], name: str) -> str:
    found = next((each for column, each in value.items() if column.lower() == name), None)
    return str(found).strip() if isinstance(found, str | int) else ""
