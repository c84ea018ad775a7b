"""Read labelled examples: our own, the released VerifyRM columns, VerifyBench.

VerifyBench and VerifyBench-Hard (hub id ZJU-REAL/VerifyBench, one JSONL file each) have the columns
question_id, completion_id, question, answer, completion, gold_correct (true or false), completion_model,
source, answer_type, answer_subtype, annotator. The authors' evaluate.py reads question, answer, completion,
gold_correct, answer_type and answer_subtype; the other names are from independent readers' code. The released
VerifyRM data has question, reference_answer, completion, label.
"""

from pathlib import Path
from typing import Any, cast

from cooper_rl.errors import DataError
from cooper_rl.records.files import RawRow
from cooper_rl.records.rejected import UsableRows, read_usable
from cooper_rl.schema.data import VerifyExample

VERIFY_BENCH_FIELDS = ("question", "answer", "completion", "gold_correct")


def read_examples(path: Path) -> UsableRows[VerifyExample]:
    """Labelled examples in file order; rows that are none are set aside.

    Raises:
        DataError: when no row is good, with the first reason.
    """
    return read_usable(path, VerifyExample, translate=_translate)


def _translate(row: RawRow) -> RawRow:
    """A VerifyBench row in our columns; any other row as it is."""
    if not isinstance(row.value, dict) or "gold_correct" not in row.value:
        return row
    value = cast("dict[str, Any]", row.value)
    missing = [name for name in VERIFY_BENCH_FIELDS if name not in value]
    if missing or not isinstance(value["gold_correct"], bool):
        found = f"lacks {', '.join(missing)}" if missing else f"gold_correct is {value['gold_correct']!r}"
        raise DataError(
            f"{row.file}:{row.row}: looks like a VerifyBench row but {found}; it has the fields "
            f"{', '.join(VERIFY_BENCH_FIELDS)}, with gold_correct true or false"
        )
    translated = {
        "question": value["question"],
        "reference_answer": value["answer"],
        "completion": value["completion"],
        "label": int(value["gold_correct"]),
        "source": value.get("source"),
        "answer_type": value.get("answer_type"),
    }
    return row._replace(value=translated)
