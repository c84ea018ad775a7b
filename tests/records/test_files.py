"""Reading and writing records: every bad row is named, nothing half-written is ever seen."""

import json
import os
from contextlib import suppress
from pathlib import Path

import pytest

from cooper_rl.errors import DataError
from cooper_rl.records.files import (
    atomic_path,
    check_output,
    check_unique,
    is_same_file,
    read_records,
    read_report,
    read_rows,
    write_records,
    write_report,
)
from cooper_rl.records.rejected import read_usable
from cooper_rl.schema.data import Problem
from cooper_rl.schema.reports import CollectReport

GOOD = [Problem(id=str(n), source="t", question=f"q {n} π", reference_answer="1") for n in range(3)]


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.parquet", "rows"])
def test_what_is_written_is_what_is_read(tmp_path: Path, name: str) -> None:
    assert write_records(tmp_path / name, GOOD) == 3
    assert read_records(tmp_path / name, Problem) == GOOD


def test_a_file_is_the_same_in_every_spelling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "one.jsonl").write_text("")
    (tmp_path / "link.jsonl").symlink_to("one.jsonl")
    monkeypatch.chdir(tmp_path)
    for other in ("one.jsonl", "./one.jsonl", tmp_path / "one.jsonl", "link.jsonl"):
        assert is_same_file(Path("one.jsonl"), Path(other))
    assert not is_same_file(Path("one.jsonl"), Path("two.jsonl"))


def test_a_report_comes_back(tmp_path: Path) -> None:
    report = CollectReport(num_problems=1, num_held_out=2, num_rejected=3)
    write_report(tmp_path / "report.json", report)
    assert read_report(tmp_path / "report.json", CollectReport) == report


def bad_rows() -> dict[str, tuple[bytes, str]]:
    good = json.loads(GOOD[0].model_dump_json())
    return {
        "not JSON": (b"{", "not JSON"),
        "not UTF-8": (b'{"id": "\xff"}', "not UTF-8"),
        "not an object": (b"[1, 2]", r"field '\(row\)'"),
        "an unknown field": (json.dumps(good | {"extra": 1}).encode(), "field 'extra': Extra inputs"),
        "a missing field": (b'{"id": "x"}', "field 'source': Field required"),
        "a wrong type": (json.dumps(good | {"question": 7}).encode(), "field 'question': .* found 7"),
        "an empty text": (json.dumps(good | {"question": ""}).encode(), "field 'question': .* found ''"),
        "a number beyond Python's limit": (b'{"id": ' + b"9" * 5000 + b"}", "not JSON: Exceeds the limit"),
        "half a surrogate pair": (
            json.dumps(good | {"source": "\ud83d"}).encode(),
            "not JSON: .* surrogates",
        ),
        "nesting beyond Python's limit": (b"[" * 100_000, "not JSON: "),
    }


@pytest.mark.parametrize("kind", [kind for kind in bad_rows() if kind != "an unknown field"])
def test_a_bad_row_is_set_aside_with_its_place_and_the_others_go_on(tmp_path: Path, kind: str) -> None:
    content, reason = bad_rows()[kind]
    lines = [GOOD[0].model_dump_json().encode(), content, GOOD[1].model_dump_json().encode()]
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"\n".join(lines))
    result = read_usable(path, Problem)
    assert result.records == GOOD[:2]
    assert [row.row for row in result.rejected] == [2]
    with pytest.raises(DataError, match=rf"rows\.jsonl:2: .*{reason}"):
        read_records(path, Problem)


def test_a_file_without_one_good_row_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text("{}\n{}\n")
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(DataError, match="no usable Problem row; the first of 2 bad rows"):
        read_usable(tmp_path / "bad.jsonl", Problem)
    with pytest.raises(DataError, match="no usable Problem row; the file is empty"):
        read_usable(tmp_path / "empty.jsonl", Problem)
    with pytest.raises(DataError, match="no Problem rows; the file is empty"):
        read_records(tmp_path / "empty.jsonl", Problem)


def test_a_missing_file_and_an_unknown_format_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.jsonl: no such file"):
        read_records(tmp_path / "none.jsonl", Problem)
    with pytest.raises(DataError, match="is a folder; give one file in it"):
        read_records(tmp_path, Problem)
    for array in ('[\n{"id": "1"}\n]', '[{"id": "1"}]', '[ {"id": "1"},\n{"id": "2"}]'):
        (tmp_path / "array.json").write_text(array)
        with pytest.raises(DataError, match="a JSON array; write one JSON object per line"):
            read_records(tmp_path / "array.json", Problem)
    (tmp_path / "indented.json").write_text('{\n"id": "1"\n}\n')
    with pytest.raises(DataError, match=r"a JSON object over several lines; .*jq -c \. does it"):
        read_records(tmp_path / "indented.json", Problem)
    (tmp_path / "rows.txt").write_text("a,b\n")
    with pytest.raises(DataError, match=r"unknown format '\.txt'; name JSON lines \.jsonl, tables \.csv"):
        read_records(tmp_path / "rows.txt", Problem)
    (tmp_path / "rows.parquet").write_text("a,b\n")
    with pytest.raises(DataError, match="not a readable Parquet file"):
        read_records(tmp_path / "rows.parquet", Problem)
    with pytest.raises(DataError, match=r"cannot be read .*File name too long.*check its permissions"):
        read_records(tmp_path / ("x" * 300 + ".jsonl"), Problem)
    if Path("/proc/self/mem").exists():
        with pytest.raises(DataError, match=r"/proc/self/mem: cannot be read .*Input/output error"):
            read_records(Path("/proc/self/mem"), Problem)


def test_a_damaged_or_missing_report_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file; run the stage that writes this CollectReport"):
        read_report(tmp_path / "none.json", CollectReport)
    (tmp_path / "bad.json").write_text('{"num_problems": "many"}')
    with pytest.raises(DataError, match="not a CollectReport: field 'num_problems'"):
        read_report(tmp_path / "bad.json", CollectReport)


def test_duplicates_are_named_with_both_rows(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"rows:4: duplicate id '1', first seen in row 2"):
        check_unique([*GOOD, GOOD[1]], field="id", path=tmp_path / "rows")


def test_a_write_that_fails_leaves_the_old_file_and_no_draft(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with suppress(RuntimeError), atomic_path(path) as draft:
        draft.write_text("half")
        raise RuntimeError
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(
        DataError, match=r"file/inside: cannot be written .* free space or choose another path"
    ):
        write_records(tmp_path / "file" / "inside", GOOD)


def test_a_device_or_a_pipe_at_an_outputs_path_stays(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataError, match=r"pipe: cannot be written \(what has this name is no regular file\)"):
        write_records(tmp_path / "pipe", GOOD)
    assert (tmp_path / "pipe").is_fifo()


def test_a_pipe_is_not_called_missing(tmp_path: Path) -> None:
    """`<(zcat rows.gz)` of a shell."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataError, match=r"pipe: is a pipe or device, whose rows cannot be read twice; save"):
        list(read_rows(tmp_path / "pipe"))


def test_an_output_that_could_not_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    for path, is_folder, reason in (
        (tmp_path, False, "what has this name is no regular file"),
        (tmp_path / "file", True, "what has this name is no folder"),
        (tmp_path / "file" / "inside", False, "file is no folder that can be written to"),
        (tmp_path / ("n" * 300), False, "File name too long"),
    ):
        with pytest.raises(DataError, match=f"cannot be written .*{reason}"):
            check_output(path, is_folder=is_folder)
    check_output(tmp_path / "new" / "folder", is_folder=True)
    assert not (tmp_path / "new").exists()


def test_a_small_parquet_file_with_millions_of_rows_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    """Twenty million equal rows are some hundred kilobytes on disk, and gigabytes as Python objects."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path / "bomb.parquet"
    with pq.ParquetWriter(path, pa.schema([("question", pa.string())]), compression="zstd") as writer:
        group = pa.table({"question": pa.array(["q"] * 1_000_000).dictionary_encode().cast(pa.string())})
        for _ in range(20):
            writer.write_table(group)
    assert path.stat().st_size < 1_000_000
    with pytest.raises(
        DataError, match=r"bomb\.parquet: holds 20,000,000 rows; a Parquet file may hold 2,000,000 rows"
    ):
        next(read_rows(path))


def test_a_parquet_file_whose_values_unfold_is_refused_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path / "bomb.parquet"
    pq.write_table(pa.table({"question": ["x" * 100_000] * 2000}), path)
    assert path.stat().st_size < 200_000
    monkeypatch.setattr("cooper_rl.records.parquet.MAX_BYTES", 100_000_000)
    rows = read_rows(path)
    for _ in range(500):
        assert next(rows).problem is None
    with pytest.raises(DataError, match=r"holds over 0\.1 GB of values; .* keep the part that you need"):
        list(rows)
