import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from cooper_rl.errors import DataError
from cooper_rl.records.files import read_records
from cooper_rl.records.rejected import read_usable, set_aside, stream_usable
from cooper_rl.schema.data import RejectedRow, VerifyExample

ROW = '{"question": "q", "reference_answer": "1", "completion": "1", "label": 1, "source": "s"}'


def test_good_rows_stay_in_order_and_bad_ones_say_where_and_why(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join([ROW, "[1]", ROW.replace('"q"', '"r"'), ROW]) + "\n")
    rejected: list[RejectedRow] = []
    found = stream_usable(
        path,
        VerifyExample,
        set_aside=rejected.append,
        find_fault=lambda usable: "seen before" if usable.row == 4 else None,
    )
    assert [(usable.row, usable.record.question) for usable in found] == [(1, "q"), (3, "r")]
    assert [row.row for row in rejected] == [2, 4]
    assert rejected[1].reason == f"{path}:4: seen before"
    assert [row.question for row in read_usable(path, VerifyExample).records] == ["q", "r", "q"]


@pytest.mark.parametrize(
    ("text", "why"), [("", "the file is empty"), ("[1]\n", "the first of 1 bad rows: .*rows.jsonl:1")]
)
def test_a_file_without_a_usable_row_is_refused(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "rows.jsonl").write_text(text)
    with pytest.raises(DataError, match=f"no usable VerifyExample row; {why}"):
        read_usable(tmp_path / "rows.jsonl", VerifyExample)


def test_rows_set_aside_stand_beside_the_report_and_are_announced_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [RejectedRow(file="f", row=n, reason=f"reason {n}", content="") for n in (1, 2)]
    with caplog.at_level(logging.WARNING):
        path = set_aside(tmp_path / "report", rows)
    assert path is not None
    assert path == tmp_path / "report.rejected.jsonl"
    assert read_records(path, RejectedRow) == rows
    assert caplog.messages == [f"2 rows set aside, see {path}; the first: reason 1"]
    assert set_aside(tmp_path / "report", []) is None
    assert not path.exists()


def test_rows_set_aside_go_where_a_pipeline_wants_them_also_when_there_are_none(tmp_path: Path) -> None:
    rows = [RejectedRow(file="f", row=1, reason="reason 1", content="")]
    assert set_aside(tmp_path / "report", rows, rejected=tmp_path / "mine") == tmp_path / "mine"
    assert read_records(tmp_path / "mine", RejectedRow) == rows
    assert set_aside(tmp_path / "report", [], rejected=tmp_path / "mine") == tmp_path / "mine"
    assert (tmp_path / "mine").read_bytes() == b""
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (os.mkfifo, "what has this name is no regular file"),
        (os.mkdir, "what has this name is no regular file"),
        (
            lambda path: path.symlink_to("elsewhere"),
            "is a link to nothing, which this would replace; move it",
        ),
    ],
)
def test_what_is_no_file_stays_in_that_place(tmp_path: Path, make: Callable[[Path], None], why: str) -> None:
    path = tmp_path / "report.rejected.jsonl"
    make(path)
    with pytest.raises(DataError, match=why):
        set_aside(tmp_path / "report", [])
    assert os.path.lexists(path)


def test_rows_that_somebody_mended_in_part_are_kept(tmp_path: Path) -> None:
    path = set_aside(tmp_path / "report", [RejectedRow(file="f", row=1, reason="reason 1", content="")])
    with path.open("a") as rows:
        rows.write(ROW + "\n")
    with pytest.raises(DataError, match="holds other rows than those that a stage set aside"):
        set_aside(tmp_path / "report", [])
    assert len(path.read_text().splitlines()) == 2


def test_another_file_of_that_name_is_kept(tmp_path: Path) -> None:
    """Nobody asked for this name, and somebody may have mended the rows in place."""
    path = tmp_path / "report.rejected.jsonl"
    path.write_text(ROW + "\n")
    for rows in ([], [RejectedRow(file="f", row=1, reason="reason 1", content="")]):
        with pytest.raises(DataError, match="holds other rows than those that a stage set aside; move it"):
            set_aside(tmp_path / "report", rows)
    assert path.read_text() == ROW + "\n"
