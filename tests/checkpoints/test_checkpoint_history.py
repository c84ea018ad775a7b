"""Earlier checkpoints of a run: found by their step, also by a process that has just started."""

import errno
import os
import warnings
from pathlib import Path

import pytest

from cooper_rl.checkpoints.identity import RunIdentity
from cooper_rl.checkpoints.search import checkpoint_names
from cooper_rl.checkpoints.state import TrainingState
from cooper_rl.checkpoints.store import CheckpointStore
from cooper_rl.checkpoints.writer import CheckpointWriter
from cooper_rl.config.infrastructure import StorageConfig
from cooper_rl.errors import ConfigError, CooperWarning, DataError, StorageError
from cooper_rl.storage.base import ObjectStore
from cooper_rl.storage.open import open_store
from tests.full_disk import no_file_beyond


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(StorageConfig(), str(tmp_path / "store"))


def save(store: ObjectStore, make_policy, make_verify_rm, work: Path, *steps: int) -> CheckpointStore:
    """As a run does that keeps its two newest checkpoints."""
    checkpoints = CheckpointStore(store, identity=RunIdentity({}), retention=StorageConfig(keep_last=2))
    state = TrainingState(0, make_policy(0), make_verify_rm(0), {}, {}, [], [])
    with CheckpointWriter(checkpoints, work) as writer:
        for step in steps:
            state.step = step
            writer.save(state, score=0)
    return checkpoints


def found_step(checkpoints: CheckpointStore, folder: Path, *, step: int) -> int | None:
    found = checkpoints.newest_until(folder, step=step)
    return None if found is None else found.manifest.step


def test_the_newest_kept_checkpoint_up_to_a_step_is_found(
    store: ObjectStore, make_policy, make_verify_rm, tmp_path: Path
) -> None:
    """Of 10, 20 and 30 the first was removed when the third was written; a resumed run knows that too."""
    writing = save(store, make_policy, make_verify_rm, tmp_path / "work", 10, 20, 30)
    resumed = CheckpointStore(store, identity=RunIdentity({}), retention=StorageConfig(keep_last=2))
    assert resumed.newest(tmp_path / "fetched", last_step=100) is not None
    for checkpoints in (writing, resumed):
        steps = {step: found_step(checkpoints, tmp_path / "until", step=step) for step in (9, 19, 20, 29, 99)}
        assert steps == {9: None, 19: None, 20: 20, 29: 20, 99: 30}


def test_a_damaged_checkpoint_is_passed_over(
    store: ObjectStore, make_policy, make_verify_rm, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    writing = save(store, make_policy, make_verify_rm, tmp_path / "work", 10, 20)
    store.delete(["step-000020/run_state.json"])
    assert found_step(writing, tmp_path / "until", step=25) == 10
    assert "checkpoint step-000020 is passed over" in caplog.text


def point_to(store: ObjectStore, name: str) -> None:
    store.delete(["LATEST"])
    store.write("LATEST", name.encode(), replaces=None)


def test_a_pointer_that_is_no_name_leads_to_the_newest(
    store: ObjectStore, make_policy, make_verify_rm, tmp_path: Path
) -> None:
    checkpoints = save(store, make_policy, make_verify_rm, tmp_path / "work", 10, 20)
    point_to(store, "")
    found = checkpoints.newest(tmp_path / "fetched", last_step=100)
    assert found is not None
    assert found.name == "step-000020"


def test_what_has_no_manifest_is_no_checkpoint_and_not_spoken_of(
    store: ObjectStore, make_policy, make_verify_rm, tmp_path: Path
) -> None:
    """A killed writer left it; with a damaged newest one, the run goes on from the one before it."""
    checkpoints = save(store, make_policy, make_verify_rm, tmp_path / "work", 10, 20)
    store.write("step-000015/run_state.json", b"", replaces=None)
    store.delete(["step-000020/run_state.json"])
    with pytest.warns(CooperWarning) as said:
        found = checkpoints.newest(tmp_path / "fetched", last_step=100)
    assert found is not None
    assert found.name == "step-000010"
    assert len(said) == 1


def test_what_was_written_after_the_pointers_checkpoint_and_builds_on_it_is_the_newest(
    store: ObjectStore, make_policy, make_verify_rm, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A run was killed before it wrote the pointer, or an old pointer was restored."""
    checkpoints = save(store, make_policy, make_verify_rm, tmp_path / "work", 10, 20)
    point_to(store, "step-000010")
    found = checkpoints.newest(tmp_path / "fetched", last_step=100)
    assert found is not None
    assert found.name == "step-000020"
    assert "LATEST: is step-000010; continuing from step-000020" in caplog.text


def test_a_newer_checkpoint_that_does_not_build_on_the_pointers_is_not_used(
    store: ObjectStore, make_policy, make_verify_rm, tmp_path: Path
) -> None:
    """Its writer lost against the writer of the pointer."""
    save(store, make_policy, make_verify_rm, tmp_path / "work", 20)
    store.delete(["LATEST"])
    checkpoints = save(store, make_policy, make_verify_rm, tmp_path / "work", 10)
    found = checkpoints.newest(tmp_path / "fetched", last_step=100)
    assert found is not None
    assert found.name == "step-000010"


@pytest.mark.parametrize("name", [None, "step-000015"])
def test_without_a_pointer_the_newest_is_found_by_its_manifest_and_named(
    store: ObjectStore, make_policy, make_verify_rm, tmp_path: Path, name: str | None, caplog
) -> None:
    """Missing, or the name of a checkpoint that is not there. Nothing is removed."""
    checkpoints = save(store, make_policy, make_verify_rm, tmp_path / "work", 10, 20)
    before = store.keys("step-")
    store.delete(["LATEST"])
    if name is not None:
        store.write("LATEST", name.encode(), replaces=None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CooperWarning)
        found = checkpoints.newest(tmp_path / "fetched", last_step=100)
    assert found is not None
    assert found.name == "step-000020"
    assert f"LATEST: is {name or 'missing'}; continuing from step-000020" in caplog.text
    assert store.keys("step-") == before


def test_without_a_pointer_two_runs_checkpoints_are_refused(
    store: ObjectStore, make_policy, make_verify_rm, tmp_path: Path
) -> None:
    save(store, make_policy, make_verify_rm, tmp_path / "work", 10)
    store.delete(["LATEST"])
    other = CheckpointStore(store, identity=RunIdentity({"seed": "1"}), retention=StorageConfig())
    state = TrainingState(20, make_policy(0), make_verify_rm(0), {}, {}, [], [])
    with CheckpointWriter(other, tmp_path / "work") as writer:
        writer.save(state, score=0)
    store.delete(["LATEST"])
    with pytest.raises(
        ConfigError,
        match=r"LATEST is missing or names no checkpoint, and step-000020 is of this run, but step-000010 of "
        r"another configuration or other data; write the name of the one to continue from into LATEST, or",
    ):
        other.newest(tmp_path / "fetched", last_step=100)


def test_without_a_pointer_two_newest_that_differ_are_refused(
    store: ObjectStore, make_policy, make_verify_rm, tmp_path: Path, monkeypatch
) -> None:
    """Of two writers, none of which came to removing the other's."""
    monkeypatch.setattr(CheckpointStore, "_tidy", lambda *_, **__: None)
    checkpoints = save(store, make_policy, make_verify_rm, tmp_path / "work", 10)
    store.delete(["LATEST"])
    state = TrainingState(10, make_policy(1), make_verify_rm(0), {}, {}, [], [])
    other = CheckpointStore(store, identity=RunIdentity({}), retention=StorageConfig())
    with CheckpointWriter(other, tmp_path / "work") as writer:
        writer.save(state, score=0)
    store.delete(["LATEST"])
    with pytest.raises(ConfigError, match=r"step-000010 and step-000010-\w{8} differ; write the name of the"):
        checkpoints.newest(tmp_path / "fetched", last_step=100)


def test_without_a_pointer_damaged_checkpoints_are_no_fresh_start(
    store: ObjectStore, make_policy, make_verify_rm, tmp_path: Path
) -> None:
    checkpoints = save(store, make_policy, make_verify_rm, tmp_path / "work", 10)
    store.delete(["LATEST", "step-000010/run_state.json"])
    with (
        pytest.warns(CooperWarning, match="step-000010 is passed over"),
        pytest.raises(DataError, match="LATEST: is missing, and no checkpoint is whole; restore the folder"),
    ):
        checkpoints.newest(tmp_path / "fetched", last_step=100)


def test_a_checkpoint_that_cannot_be_stored_leaves_its_room_to_the_next(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Drafted on another disk, so that the store copies; its second file does not fit."""

    def other_disk(*_: object, **__: object) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", other_disk)
    checkpoints = CheckpointStore(store, identity=RunIdentity({}), retention=StorageConfig())
    for step, size in ((1, 10), (2, 200_000), (3, 10)):
        (tmp_path / f"{step}/logs").mkdir(parents=True)
        (tmp_path / f"{step}/logs/metrics.jsonl").write_text(f'{{"step": {step}}}\n')
        (tmp_path / f"{step}/a").write_bytes(b"a" * 10)
        (tmp_path / f"{step}/b").write_bytes(b"b" * size)
    checkpoints.publish(tmp_path / "1", step=1, score=None, versions={})
    before = store.keys("")
    with no_file_beyond(100_000), pytest.raises(StorageError, match="File too large"):
        checkpoints.publish(tmp_path / "2", step=2, score=None, versions={})
    assert store.keys("") == before
    checkpoints.publish(tmp_path / "3", step=3, score=None, versions={})
    assert checkpoint_names(store) == {"step-000001", "step-000003"}
