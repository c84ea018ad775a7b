"""CSV and TSV as they come from spreadsheets."""

from pathlib import Path

import pytest

from cooper_rl.errors import DataError
from cooper_rl.records.files import read_records, read_rows
from cooper_rl.schema.data import Problem


def test_a_table_is_read_with_its_quotes_line_breaks_and_delimiter(tmp_path: Path) -> None:
    """What Excel writes: a byte order mark, CRLF, semicolons where the locale has decimal commas."""
    rows = 'id;source;question;reference_answer\r\na;s;"Two\r\nlines; ""quoted""";"1,5"\r\n\r\nb;s;q;7\r\n'
    (tmp_path / "rows.CSV").write_bytes(b"\xef\xbb\xbf" + rows.encode())
    found = read_records(tmp_path / "rows.CSV", Problem)
    assert [row.question for row in found] == ['Two\r\nlines; "quoted"', "q"]
    assert [row.reference_answer for row in found] == ["1,5", "7"]
    (tmp_path / "rows.tsv").write_text("id\tsource\tquestion\treference_answer\na\ts\tone, two\t3\n")
    assert read_records(tmp_path / "rows.tsv", Problem)[0].question == "one, two"


def test_rows_count_as_in_a_spreadsheet_and_bad_ones_say_why(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(b"question,answer\ngood,1\ntoo,many,fields\n\xff,2\n")
    good, long, coded = read_rows(path)
    assert (good.row, good.value, good.problem) == (2, {"question": "good", "answer": "1"}, None)
    assert (long.row, long.value) == (3, None)
    assert long.problem == "has 3 fields, and the header names 2; quote fields with delimiters"
    assert coded.row == 4
    assert coded.problem == "not UTF-8; save the file as UTF-8"


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1"])
def test_a_header_in_another_encoding_is_named(tmp_path: Path, encoding: str) -> None:
    """What a spreadsheet saves as "Unicode text", and what old ones save."""
    (tmp_path / "rows.csv").write_text("größe,answer\n2,3\n", encoding=encoding)
    with pytest.raises(DataError, match=r"rows\.csv:1: not UTF-8; save the file as UTF-8"):
        list(read_rows(tmp_path / "rows.csv"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"rows\.csv:1: no header \(the file is empty\); give every column a name"),
        ("a,b,a\n", r"rows\.csv:1: no header \(column 'a' stands there twice\); give every"),
        ('a,b\n1,"open\n', r"rows\.csv:2: not a readable table \(unexpected end of data\); close every"),
    ],
)
def test_a_table_that_cannot_be_read_is_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "rows.csv").write_text(text)
    with pytest.raises(DataError, match=message):
        list(read_rows(tmp_path / "rows.csv"))
