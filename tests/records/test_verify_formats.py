"""Published layouts of labelled examples."""

import json
from pathlib import Path

import pytest

from cooper_rl.errors import DataError
from cooper_rl.records.verify_formats import read_examples

VERIFY_BENCH = {
    "question_id": "q1", "completion_id": "c1", "question": "What is 3*4?", "answer": "12",
    "completion": "The answer is 12.", "gold_correct": True, "answer_type": "Numeric Values",
    "answer_subtype": "Integer", "source": "gsm8k", "completion_model": "m", "annotator": ["a", "b"],
}  # fmt: skip
RELEASED = {"question": "Q", "reference_answer": "1", "completion": "2", "label": 0}


def write(path: Path, *rows: dict[str, object]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_verify_bench_and_the_released_columns_are_read(tmp_path: Path) -> None:
    hard = VERIFY_BENCH | {"gold_correct": False, "answer_type": "String"}
    found = read_examples(write(tmp_path / "bench.jsonl", VERIFY_BENCH, hard, RELEASED)).records
    assert [(row.reference_answer, row.label, row.source, row.answer_type) for row in found] == [
        ("12", 1, "gsm8k", "Numeric Values"), ("12", 0, "gsm8k", "String"), ("1", 0, None, None),
    ]  # fmt: skip


def test_a_table_is_read_as_the_same_rows_in_lines_are(tmp_path: Path) -> None:
    (tmp_path / "bench.csv").write_text("question,answer,completion,gold_correct\nq,2,x,true\nq,2,y,False\n")
    assert [row.label for row in read_examples(tmp_path / "bench.csv").records] == [1, 0]


def test_columns_that_no_stage_knows_are_ignored_and_change_nothing(tmp_path: Path) -> None:
    plain = RELEASED | {"reference_answer": 2}
    found = read_examples(write(tmp_path / "rows.jsonl", plain, plain | {"level": 3, "id": "a"})).records
    assert [row.reference_answer for row in found] == ["2", "2"]
    empty = [RELEASED | {name: ""} for name in ("question", "reference_answer")]
    rejected = read_examples(write(tmp_path / "some.jsonl", RELEASED, *empty)).rejected
    assert [row.row for row in rejected] == [2, 3]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            {k: v for k, v in VERIFY_BENCH.items() if k != "answer"},
            "lacks answer; it has the fields question",
        ),
        (VERIFY_BENCH | {"gold_correct": "yes"}, "gold_correct is 'yes'; it has"),
    ],
)
def test_a_damaged_verify_bench_row_is_set_aside(tmp_path: Path, row, message) -> None:
    result = read_examples(write(tmp_path / "bench.jsonl", VERIFY_BENCH, row))
    assert len(result.records) == 1
    assert message in result.rejected[0].reason
    assert "bench.jsonl:2: looks like a VerifyBench row" in result.rejected[0].reason


def test_a_file_without_a_usable_row_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(DataError, match=r"empty\.jsonl: no usable VerifyExample row; the file is empty"):
        read_examples(tmp_path / "empty.jsonl")
    with pytest.raises(DataError, match="the first of 1 bad rows"):
        read_examples(write(tmp_path / "bad.jsonl", {"question": "Q"}))
