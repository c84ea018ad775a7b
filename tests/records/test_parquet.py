"""Parquet in bounded memory: types that show late, row groups of any size."""

import random
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cooper_rl.errors import DataError
from cooper_rl.records.batches import in_batches
from cooper_rl.records.files import read_records, read_rows, write_records
from cooper_rl.records.parquet import read_parquet
from cooper_rl.schema.data import Label

LABEL = Label(
    completion_id="c",
    rule="correct",
    rule_reason="equal",
    judge=None,
    judge_model=None,
    is_correct=None,
    reason="rule_alone",
)


def test_batches_end_at_the_first_limit_that_they_reach() -> None:
    texts = ["a", "bb", "cccc", "d", "e", "f", "ggggggg"]
    found = in_batches(texts, max_items=3, max_chars=6, count_chars=len)
    assert list(found) == [["a", "bb", "cccc"], ["d", "e", "f"], ["ggggggg"]]
    assert list(in_batches([], max_items=3, max_chars=6, count_chars=len)) == []


def test_a_column_that_is_null_in_the_first_row_groups_keeps_its_later_type(
    tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr("cooper_rl.records.parquet.GROUP_ROWS", 10)
    late = LABEL.model_copy(update={"judge": "correct", "judge_model": "m", "is_correct": True})
    rows = [LABEL] * 25 + [late] * 3
    assert write_records(tmp_path / "rows.parquet", rows) == 28
    assert pq.ParquetFile(tmp_path / "rows.parquet").num_row_groups == 3
    assert read_records(tmp_path / "rows.parquet", Label) == rows


def test_a_file_of_one_huge_row_group_is_read_in_little_memory(tmp_path: Path) -> None:
    """200 MB of texts, in one row group: a reader that unpacks it needs all of them."""
    texts = [random.Random(row).randbytes(2500).hex() for row in range(40_000)]
    pq.write_table(pa.table({"text": texts}), tmp_path / "rows.parquet", row_group_size=10**6)
    code = (
        "import re, sys; from pathlib import Path; from cooper_rl.records.files import read_rows\n"
        "print(sum(1 for row in read_rows(Path(sys.argv[1]), is_limited=False)))\n"
        "print(re.search(r'VmHWM:\\s+(\\d+)', Path('/proc/self/status').read_text())[1])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "rows.parquet")],
        capture_output=True,
        text=True,
        check=True,
    )
    num_rows, peak_kib = map(int, done.stdout.split())
    assert num_rows == 40_000
    assert peak_kib < 160_000


def test_numbers_of_32_bits_are_those_that_were_written(tmp_path: Path) -> None:
    """As a number of 64 bits, .1 of 32 bits is .10000000149011612."""
    kind = pa.struct({"x": pa.list_(pa.float16()), "y": pa.string()})
    rows = {
        "answer": pa.array([0.1, None, 3.3], pa.float32()),
        "inner": pa.array([{"x": [0.1, None], "y": "a"}, None, {"x": None, "y": "b"}], kind),
    }
    pq.write_table(pa.table(rows), tmp_path / "rows.parquet")
    found = [row.value for row in read_rows(tmp_path / "rows.parquet")]
    assert [row["answer"] for row in found] == [0.1, None, 3.3]
    assert [row["inner"] for row in found] == [{"x": [0.1, None], "y": "a"}, None, {"x": None, "y": "b"}]


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    columns = [pa.array(["1+1?"]), pa.array(["2"]), pa.array(["3"])]
    pq.write_table(pa.table(columns, names=["question", "answer", "answer"]), tmp_path / "x.parquet")
    with pytest.raises(DataError, match=r"x\.parquet: has more than one column 'answer'; rename all but one"):
        list(read_parquet(tmp_path / "x.parquet", is_limited=False))
