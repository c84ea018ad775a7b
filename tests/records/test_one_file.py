"""One file of questions, reference answers and completions, in the columns that people have."""

import json
import os
from pathlib import Path
from typing import NamedTuple

import pytest

from cooper_rl.domains.mathematics import MATHEMATICS
from cooper_rl.errors import DataError
from cooper_rl.labels.rows import Inputs, Row
from cooper_rl.labels.workspace import open_workspace
from cooper_rl.records.verify_formats import read_examples
from cooper_rl.schema.data import RejectedRow

TRL = {
    "prompt": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "1+1?"}],
    "completion": [{"role": "assistant", "content": "It is 2."}],
    "ground_truth": "2",
}
VERL = {
    "data_source": "openai/gsm8k",
    "prompt": [{"role": "user", "content": "1+1?"}],
    "reward_model": {"style": "rule", "ground_truth": "2"},
    "response": "It is 2.",
}
PLAIN = {"question": "1+1?", "answer": "One and one.\n#### 2", "output": "It is 2.", "unrelated": 5}


def write(path: Path, *rows: object) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


class Found(NamedTuple):
    rows: list[Row]
    rejected: list[RejectedRow]


def read(path: Path, *, frozen: Path | None = None) -> Found:
    inputs = Inputs(path, path, frozen)
    with open_workspace(inputs, find_reference_fault=MATHEMATICS.find_reference_fault) as work:
        return Found(list(work.rows.usable), list(work.rows.rejected))


def test_columns_of_trainers_become_problems_and_completions(tmp_path: Path) -> None:
    rows, rejected = read(write(tmp_path / "rows.jsonl", TRL, VERL, PLAIN))
    assert rejected == []
    assert {(row.problem.question, row.problem.reference_answer) for row in rows} == {("1+1?", "2")}
    assert len({row.problem.id for row in rows}) == 1
    assert {row.completion.text for row in rows} == {"It is 2."}
    assert [row.completion.id for row in rows] == ["rows-1", "rows-2", "rows-3"]


def test_a_row_keeps_its_id_model_and_ending(tmp_path: Path) -> None:
    own = PLAIN | {"id": "a", "model": "m", "finish_reason": "length"}
    other = PLAIN | {"id": 7, "source": "s", "finish_reason": "eos"}
    upper = PLAIN | {"ID": "b", "Model": "m", "Finish_Reason": "stop"}
    found = [row.completion for row in read(write(tmp_path / "rows.jsonl", own, other, upper)).rows]
    assert [(each.id, each.model, each.finish_reason) for each in found] == [
        ("a", "m", "length"), ("7", "s", "stop"), ("b", "m", "stop")
    ]  # fmt: skip


def test_rows_that_cannot_be_used_are_set_aside_with_the_reason(tmp_path: Path) -> None:
    bad = [
        "no object",
        {"x": 1},
        {"question": "q", "answer": "1"},
        {"question": "q", "answer": "1", "completion": 5},
        {"prompt": [{"role": "system", "content": "s"}], "answer": "1", "completion": "c"},
        PLAIN | {"id": "a"},
    ]
    found = read(write(tmp_path / "rows.jsonl", PLAIN | {"id": "a"}, *bad))
    assert len(found.rows) == 1
    reasons = [row.reason for row in found.rejected]
    expected = [
        "rows.jsonl:2: not a row with a problem, which has a question column (question, problem, prompt",
        r"or a solution with \boxed{answer}; rename the columns of this file",
        "rows.jsonl:4: no completion; give it a column named completion or response or output or generation",
        "rows.jsonl:5: field 'completion' is 5 (int), not text",
        "rows.jsonl:6: field 'prompt' has no message of role 'user'",
        "rows.jsonl:7: duplicate id 'a', first seen in row 1; make ids unique, or rename the column where it",
    ]
    assert all(part in reason for part, reason in zip(expected, reasons, strict=True)), reasons


def test_a_file_without_a_usable_row_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no usable row with question, .*; the first of 1: .*:1: no compl"):
        read(write(tmp_path / "rows.jsonl", {"question": "q", "answer": "1"}))
    with pytest.raises(DataError, match=r"no usable row with question, .*; the file is empty"):
        read(write(tmp_path / "empty.jsonl"))


def test_one_file_with_a_frozen_question_is_refused(tmp_path: Path) -> None:
    example = {"question": "1+1?", "reference_answer": "2", "completion": "It is 2.", "label": 1}
    frozen = write(tmp_path / "frozen.jsonl", example | {"source": "m"})
    rows = write(tmp_path / "rows.jsonl", PLAIN)
    with pytest.raises(DataError, match=r"rows.jsonl: problem '[0-9a-f]{16}' has a question of .*frozen"):
        read(rows, frozen=frozen)


@pytest.mark.parametrize("row", [TRL, VERL, PLAIN])
def test_labelled_rows_in_columns_of_trainers_are_examples(tmp_path: Path, row: dict) -> None:
    path = write(tmp_path / "rows.jsonl", row | {"label": 1}, row | {"correct": False}, row)
    found = read_examples(path)
    assert [(e.question, e.reference_answer, e.completion) for e in found.records] == [
        ("1+1?", "2", "It is 2.")
    ] * 2
    assert [example.label for example in found.records] == [1, 0]
    assert "no label; give it a column named label or is_correct or correct" in found.rejected[0].reason


def test_labels_of_a_table_are_texts(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    labels = ["1", "0", "TRUE", "false", "1.0", "", "maybe"]
    path.write_text("question,reference_answer,completion,label\n" + "".join(f"q,1,c,{x}\n" for x in labels))
    found = read_examples(path)
    assert [example.label for example in found.records] == [1, 0, 1, 0, 1]
    assert "label" in found.rejected[0].reason
    assert "field 'label' is 'maybe' (str); write 1 for correct and 0" in found.rejected[1].reason


def test_a_file_name_that_is_not_utf_8_is_shown_with_replacement_characters(tmp_path: Path) -> None:
    rows, rejected = read(write(tmp_path / os.fsdecode(b"bad\xff.jsonl"), PLAIN, {"x": 1}))
    assert (rows[0].problem.source, rows[0].completion.id) == ("bad\ufffd", "bad\ufffd-1")
    assert rejected[0].file == str(tmp_path / "bad\ufffd.jsonl")


@pytest.mark.parametrize(
    "content", [[{"type": "image", "text": None}, {"type": "text", "text": "It is 2."}], 7]
)
def test_a_message_may_hold_blocks_without_a_text_and_must_be_text(tmp_path: Path, content: object) -> None:
    """Parquet fills in a null for a field that a block does not have."""
    message = {"role": "assistant", "content": content}
    rows, rejected = read(write(tmp_path / "rows.jsonl", PLAIN, PLAIN | {"output": [message]}))
    if content == 7:
        assert "field 'output' is 7 (int), not text" in rejected[0].reason
    else:
        assert [row.completion.text for row in rows] == ["It is 2.", "It is 2."]
