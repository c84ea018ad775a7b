"""Verdicts outlive the disk of the pod that asked for them: in a folder, and on an S3 server."""

import io
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from cooper_rl.config.infrastructure import StorageConfig
from cooper_rl.config.load import load
from cooper_rl.errors import StorageError
from cooper_rl.labels.kept import Segments, open_segments
from cooper_rl.schema.reports import LabelReport
from cooper_rl.storage.local import LocalStore
from cooper_rl.storage.open import open_store
from cooper_rl.verdicts.journal import Journal, KeptVerdict
from tests.stages.label_completions.conftest import judge_server as judge_server  # a fixture
from tests.stages.label_completions.labelling import KILLED, label, write_inputs
from tests.stand_ins.fixtures import make_client, storage_config

DIE_AT = (95, 30, 1, 20)
"""Verdicts that each pod keeps before it is killed; the first has 90 of the rule to keep too."""


@pytest.fixture(params=["folder", "s3"])
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> list[str]:
    """Overrides that name a store."""
    if request.param == "folder":
        return [f"storage.uri={tmp_path / 'store'}"]
    bucket = request.getfixturevalue("bucket")
    config = storage_config(request.getfixturevalue("s3_server").endpoint, bucket)
    return [f"storage.uri={config.uri}", f"storage.endpoint={config.endpoint}", "storage.retry_seconds=5"]


def new_disk(folder: Path) -> Path:
    """The inputs and nothing else, as a pod that takes another one's place has them."""
    folder.mkdir()
    write_inputs(folder, ["#### {answer}", "#### {wrong}", "So it is {answer}"])
    return folder


def ask_at(url: str) -> str:
    return f'labeling.judge={{server={{base_url="{url}", model="judge-1", max_concurrency=1}}}}'


@pytest.mark.slow
def test_pods_that_are_killed_and_replaced_ask_the_judge_once_for_every_row(
    tmp_path: Path, judge_server: tuple[str, Path], stored: list[str]
) -> None:
    url, log = judge_server
    overrides = ["labeling.rule.num_workers=1", "storage.verdict_seconds=0", ask_at(url), *stored]
    for number, deadline in enumerate(DIE_AT):
        folder = new_disk(tmp_path / f"pod-{number}")
        command = [sys.executable, "-c", KILLED, str(folder), str(deadline), *overrides]
        assert subprocess.run(command, check=False).returncode == -9
    report = label(new_disk(tmp_path / "last"), load("laptop", overrides))
    assert report.judge_usage is not None
    assert (report.num_known_verdicts, report.judge_usage.num_requests) == (56, 34)
    asked = log.read_text().splitlines()
    assert len(asked) == len(set(asked)) == 90
    assert report.decisions == {"both_agree": 90}
    assert_address_plays_no_part(tmp_path, overrides, report)


def assert_address_plays_no_part(tmp_path: Path, overrides: list[str], before: LabelReport) -> None:
    """Nobody listens at port 9, and the same model there would be asked nothing."""
    moved = [ask_at("http://127.0.0.1:9/v1") if "labeling.judge=" in each else each for each in overrides]
    report = label(new_disk(tmp_path / "moved"), load("laptop", moved))
    assert (report.num_known_verdicts, report.decisions) == (90, before.decisions)
    renamed = [each.replace("judge-1", "judge-2") for each in moved]
    with pytest.raises(Exception, match="8 requests in a row failed"):
        label(new_disk(tmp_path / "renamed"), load("laptop", renamed))


def test_a_verdict_is_in_the_store_within_the_time_without_another_one_after_it(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    with Segments(store, seconds=0.05) as segments:
        segments.add(b"one")
        segments.add(b"two")
        until = time.monotonic() + 20
        while not list(Segments(store, seconds=1).lines()) and time.monotonic() < until:
            time.sleep(0.02)
        assert list(Segments(store, seconds=1).lines()) == [b"one", b"two"]


def test_what_is_left_goes_to_the_store_at_the_end_also_when_that_is_an_error(tmp_path: Path) -> None:
    with suppress(RuntimeError), Segments(LocalStore(tmp_path), seconds=600) as segments:
        segments.add(b"one")
        raise RuntimeError
    assert list(Segments(LocalStore(tmp_path), seconds=1).lines()) == [b"one"]


def test_shards_write_side_by_side_and_a_full_segment_is_followed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cooper_rl.labels.kept.SEGMENT_BYTES", 10)
    store = LocalStore(tmp_path)
    with Segments(store, seconds=0) as one, Segments(store, seconds=600) as other:
        for number in range(6):
            one.add(f"one {number}".encode())
            other.add(f"other {number}".encode())
    lines = sorted(Segments(store, seconds=1).lines())
    assert lines == sorted(f"{who} {number}".encode() for who in ("one", "other") for number in range(6))
    assert len(store.keys("")) == 6


def test_a_damaged_segment_costs_its_verdicts_only(
    s3_server, bucket: str, caplog: pytest.LogCaptureFixture
) -> None:
    config = storage_config(s3_server.endpoint, bucket)
    store = open_store(config, f"{config.uri}/segments")
    for line in (b"one", b"two"):
        with Segments(store, seconds=0) as segments:
            segments.add(line)
    key = store.keys("")[0]
    client = make_client(s3_server.port, s3_server.account)
    found = client.stat_object(bucket, f"runs/segments/{key}")
    metadata: dict[str, str | list[str] | tuple[str]] = {
        "sha256": str((found.metadata or {})["x-amz-meta-sha256"])
    }
    client.put_object(bucket, f"runs/segments/{key}", io.BytesIO(b"thr"), 3, metadata=metadata)
    assert len(list(Segments(store, seconds=1).lines())) == 1
    assert f"{key}: changed since it was written" in caplog.text


def test_objects_of_others_beside_the_segments_are_left_alone(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    with Segments(store, seconds=0) as segments:
        segments.add(b"one")
    for name in ("notes: read me?", "segments.txt"):
        (tmp_path / name).write_text("two")
    assert list(Segments(store, seconds=1).lines()) == [b"one"]


def test_the_object_that_a_console_makes_for_a_folder_is_no_segment(s3_server, bucket: str) -> None:
    config = storage_config(s3_server.endpoint, bucket)
    client = make_client(s3_server.port, s3_server.account)
    client.put_object(bucket, "runs/_verdicts/programs/", io.BytesIO(b""), 0)
    for known in ([], [b"one"]):
        with open_segments(config, "programs") as segments:
            assert list(segments.lines()) == known
            segments.add(b"one")


@pytest.mark.parametrize("seconds", [0, 0.02])
def test_a_store_that_takes_nothing_ends_the_labelling(tmp_path: Path, seconds: float) -> None:
    (tmp_path / "file").write_text("no folder")
    refused = pytest.raises(StorageError, match=r"file/inside: cannot be used .*; free space or choose")
    with refused, Segments(LocalStore(tmp_path / "file" / "inside"), seconds=seconds) as segments:
        add_for_a_while(segments)


def add_for_a_while(segments: Segments) -> None:
    until = time.monotonic() + 20
    while time.monotonic() < until:
        segments.add(b"one")
        time.sleep(0.01)


def test_a_journal_knows_what_its_mirror_holds_and_fills_it(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "store")
    with Segments(store, seconds=600) as segments, Journal(tmp_path / "journal", segments) as journal:
        journal.keep("a", "correct", "first")
    with Journal(tmp_path / "elsewhere", Segments(store, seconds=1)) as journal:
        assert journal.recall("a") == KeptVerdict("correct", "first")
        assert journal.recall("b") is None


def test_without_an_address_there_are_no_segments() -> None:
    assert open_segments(StorageConfig(), "mathematics") is None
