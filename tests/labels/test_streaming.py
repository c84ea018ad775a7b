"""Labelling of Parquet and JSONL alike, with as many rows in memory as a batch has."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from cooper_rl.records.files import read_records
from cooper_rl.schema.data import Label, VerifyExample
from cooper_rl.stages import label_completions
from tests.labels.old_splits import write_inputs
from tests.stages.label_completions.labelling import label, rule_only

BATCH = "cooper_rl.labels.rows.BATCH_ROWS"


def test_small_batches_give_the_same_files_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_inputs(tmp_path)
    label(tmp_path, rule_only())
    names = ("labels", "train", "validation", "test")
    whole = {name: (tmp_path / f"{name}.jsonl").read_bytes() for name in names}
    monkeypatch.setattr(BATCH, 7)
    label(tmp_path, rule_only())
    assert {name: (tmp_path / f"{name}.jsonl").read_bytes() for name in names} == whole


def test_parquet_in_and_out_holds_the_same_rows(tmp_path: Path) -> None:
    write_inputs(tmp_path)
    write_inputs(tmp_path, suffix="parquet")
    label(tmp_path, rule_only())
    label_completions.run(
        rule_only(),
        **{
            name: tmp_path / f"{name}.parquet"
            for name in ("problems", "completions", "labels", "train", "validation", "test")
        },
        report=tmp_path / "parquet.json",
    )
    for name in ("train", "validation", "test"):
        found = read_records(tmp_path / f"{name}.parquet", VerifyExample)
        assert found == read_records(tmp_path / f"{name}.jsonl", VerifyExample)
    assert read_records(tmp_path / "labels.parquet", Label) == read_records(tmp_path / "labels.jsonl", Label)


@pytest.mark.slow
def test_ten_times_the_rows_take_hardly_more_memory(tmp_path: Path) -> None:
    """Every row of 1.2 KB that stayed in memory would add 22 MB and more."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.label_scale", "2000", "20000"],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    small, large = (int(row[1]) for row in re.findall(r"(?m)^\| [\d,]+ \| (\d+) \| (\d+) ", done.stdout))
    assert large < small + 40
    assert large < 200
