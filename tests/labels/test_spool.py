from pathlib import Path

import pytest

from cooper_rl.errors import DataError
from cooper_rl.labels.spool import Spool
from cooper_rl.schema.data import Problem
from tests.full_disk import no_file_beyond

PROBLEM = Problem(id="1", source="t", question="π" * 10_000, reference_answer="3")


def test_records_come_back_in_order_again_and_again_also_while_more_are_appended(tmp_path: Path) -> None:
    with Spool(tmp_path / "rows", Problem) as spool:
        assert list(spool) == []
        for name in ("a", "b", "c"):
            spool.append(PROBLEM.model_copy(update={"id": name}))
        assert [problem.id for problem in spool] == ["a", "b", "c"]
        spool.append(PROBLEM)
        assert [problem.id for problem in spool] == ["a", "b", "c", "1"]
        assert len(spool) == 4


def test_a_record_is_read_by_its_place_also_while_more_are_appended(tmp_path: Path) -> None:
    with Spool(tmp_path / "rows", Problem) as spool:
        spool.extend(PROBLEM.model_copy(update={"id": name}) for name in "abc")
        assert (spool[1].id, spool[-1].id) == ("b", "c")
        spool.append(PROBLEM)
        assert spool[3] == PROBLEM
        assert [problem.id for problem in spool[1:]] == ["b", "c", "1"]
        for outside in (4, -5):
            with pytest.raises(IndexError):
                spool[outside]


def test_a_full_disk_is_named_with_the_variable_that_helps(tmp_path: Path) -> None:
    refused = r"rows: rows cannot be kept on disk \(.*too large\); free space, or set TMPDIR"
    spool = Spool(tmp_path / "rows", Problem)
    with no_file_beyond(100_000), pytest.raises(DataError, match=refused):
        append_often(spool)


def test_a_full_disk_is_named_when_the_rows_that_it_refused_are_given_up(tmp_path: Path) -> None:
    with (
        no_file_beyond(100_000),
        pytest.raises(DataError, match="rows cannot be kept on disk"),
        Spool(tmp_path / "rows", Problem) as spool,
    ):
        append_often(spool)


def append_often(spool: Spool[Problem]) -> None:
    for _ in range(100):
        spool.append(PROBLEM)
