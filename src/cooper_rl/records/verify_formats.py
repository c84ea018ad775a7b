"""Read labelled examples: our own, the released VerifyRM columns, VerifyBench, and columns of trainers.

VerifyBench and VerifyBench-Hard (hub id ZJU-REAL/VerifyBench, one JSONL file each) have the columns
question_id, completion_id, question, answer, completion, gold_correct (true or false), completion_model,
source, answer_type, answer_subtype, annotator. The authors' evaluate.py reads question, answer, completion,
gold_correct, answer_type and answer_subtype; the other names are from independent readers' code. The released
VerifyRM data has question, reference_answer, completion, label. Rows with other columns are read as
`layouts.py` reads problems, with a completion and a label beside them.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

from cooper_rl.errors import DataError
from cooper_rl.records.files import RawRow
from cooper_rl.records.layouts import LABEL_COLUMNS, as_label, read_label, translate_attempt
from cooper_rl.records.rejected import UsableRows, read_usable, stream_usable
from cooper_rl.schema.data import RejectedRow, VerifyExample

VERIFY_BENCH_FIELDS = ("question", "answer", "completion", "gold_correct")


def read_examples(path: Path) -> UsableRows[VerifyExample]:
    """Labelled examples in file order; rows that are none are set aside.

    Raises:
        DataError: when no row is good, with the first reason.
    """
    return read_usable(path, VerifyExample, translate=_translate)


def stream_examples(path: Path, *, set_aside: Callable[[RejectedRow], object]) -> Iterator[VerifyExample]:
    """Yield labelled examples in file order; `set_aside` is called with every other row.

    Raises:
        DataError: when no row is good, with the first reason.
    """
    found = stream_usable(path, VerifyExample, set_aside=set_aside, translate=_translate)
    return (usable.record for usable in found)


def _translate(row: RawRow) -> RawRow:
    """A row in our columns; one that is no object as it is."""
    if not isinstance(row.value, dict):
        return row
    value = cast("dict[str, Any]", row.value)
    if "gold_correct" not in value:
        return row._replace(value=_translate_other(value, f"{row.file}:{row.row}"))
    missing = [name for name in VERIFY_BENCH_FIELDS if name not in value]
    label = as_label(value["gold_correct"])
    if missing or label is None:
        found = f"lacks {', '.join(missing)}" if missing else f"gold_correct is {value['gold_correct']!r}"
        raise DataError(
            f"{row.file}:{row.row}: looks like a VerifyBench row but {found}; it has the fields "
            f"{', '.join(VERIFY_BENCH_FIELDS)}, with gold_correct true or false"
        )
    translated = {
        "question": value["question"],
        "reference_answer": value["answer"],
        "completion": value["completion"],
        "label": label,
        "source": value.get("source"),
        "answer_type": value.get("answer_type"),
    }
    return row._replace(value=translated)


def _translate_other(value: dict[str, Any], place: str) -> dict[str, Any]:
    """Our own columns with the label as a number; of other columns those that we know."""
    try:
        texts = (value.get("question"), value.get("reference_answer"))
        is_plain = all(isinstance(text, str) and text for text in texts)
        if is_plain and value.keys() <= VerifyExample.model_fields.keys():
            label = value.get("label")
            return value | {"label": read_label(value)} if isinstance(label, str) else value
        found = translate_attempt(value)
    except DataError as error:
        raise DataError(f"{place}: {error}") from error
    if found.label is None:
        raise DataError(
            f"{place}: no label; give it a column named {' or '.join(LABEL_COLUMNS)}, or label the file with "
            "label-completions"
        )
    return found._asdict() | {name: value.get(name) for name in ("source", "answer_type")}
