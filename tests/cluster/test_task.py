"""The frame of a pipeline's task: which configuration it reads, and what it tells Kubernetes of a failure."""

import traceback
from pathlib import Path

import pytest

from cooper_rl.cluster.task import AGAIN, FINAL, MAX_MESSAGE_BYTES, task
from cooper_rl.errors import ConfigError, DataError, StorageError


def told(place: Path, error: Exception) -> str:
    place.touch()
    with pytest.raises(type(error)), task("laptop", [], termination_log=place):
        raise error
    return place.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("run_key", "run_id", "overrides", "expected"),
    [
        ("", "", [], None),
        ("", "0b1e-22", [], "0b1e-22"),
        ("monday", "0b1e-22", [], "monday"),
        ("monday", "0b1e-22", ["storage.run_key=mine"], "mine"),
    ],
)
def test_checkpoints_are_named_by_a_person_or_else_by_the_runs_id(
    run_key: str, run_id: str, overrides: list[str], expected: str | None
) -> None:
    with task("laptop", overrides, run_key=run_key, run_id=run_id) as config:
        assert config.storage.run_key == expected


def test_a_mistake_in_the_configuration_is_marked_as_final(tmp_path: Path) -> None:
    place = tmp_path / "termination-log"
    place.touch()
    with (
        pytest.raises(ConfigError, match=r"cooper\.stepz"),
        task("laptop", ["cooper.stepz=1"], termination_log=place),
    ):
        pass
    text = place.read_text()
    assert text.startswith(f"{FINAL} preset 'laptop' with its overrides is not a valid configuration")
    assert "cooper.stepz: unknown key" in text


def test_a_mistake_is_shown_without_the_frames_that_found_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as raised, task("laptop", ["cooper.stepz=3"]):
        pass
    shown = "".join(traceback.format_exception(raised.value))
    assert "unknown key; did you mean 'steps'?" in shown
    assert "pydantic" not in shown
    assert "load.py" not in shown


def test_only_what_the_same_inputs_bring_about_again_is_final(tmp_path: Path) -> None:
    place = tmp_path / "termination-log"
    assert told(place, DataError("rows.jsonl:3: no answer")) == f"{FINAL} rows.jsonl:3: no answer"
    assert told(place, StorageError("minio:9000: timeout")) == f"{AGAIN} minio:9000: timeout"
    assert told(place, KeyError("step")) == f"{AGAIN} KeyError: 'step'"


def test_an_input_that_the_launcher_found_nowhere_may_come_from_the_cache(tmp_path: Path) -> None:
    place = tmp_path / "termination-log"
    assert "--no-cache" in told(place, DataError("/s3/mlpipeline/v2/artifacts/train: no such file; check"))
    assert "--no-cache" not in told(place, DataError("/data/train.jsonl: no such file; check"))


def test_kubernetes_gets_no_more_than_it_takes_and_nothing_of_a_run_that_went_well(tmp_path: Path) -> None:
    place = tmp_path / "termination-log"
    assert len(told(place, DataError("x" * 10_000)).encode()) == MAX_MESSAGE_BYTES
    for start in ("", "x", "xx"):  # `told` reads UTF-8; each cuts another part of a character
        assert told(place, DataError(start + "\u89e3" * 10_000)).endswith("\u89e3")
    place.write_text("")
    with task("laptop", [], termination_log=place):
        pass
    assert place.read_text() == ""


def test_where_there_is_no_such_file_none_is_made(tmp_path: Path) -> None:
    with pytest.raises(DataError), task("laptop", [], termination_log=tmp_path / "log"):
        raise DataError("rows.jsonl: empty")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "log").mkdir()  # nor is a file that cannot be written an error of its own
    with (
        pytest.raises(DataError, match=r"^rows\.jsonl: empty$"),
        task("laptop", [], termination_log=tmp_path / "log"),
    ):
        raise DataError("rows.jsonl: empty")
