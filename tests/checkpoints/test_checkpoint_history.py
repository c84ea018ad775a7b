"""Earlier checkpoints of a run: found by their step, also by a process that has just started."""

from pathlib import Path

import pytest

from cooper_rl.checkpoints.state import TrainingState
from cooper_rl.checkpoints.store import CheckpointStore
from cooper_rl.checkpoints.writer import CheckpointWriter
from cooper_rl.config.infrastructure import StorageConfig
from cooper_rl.errors import CooperWarning, DataError
from cooper_rl.storage.base import ObjectStore
from cooper_rl.storage.open import open_store


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(StorageConfig(), str(tmp_path / "store"))


def save(store: ObjectStore, make_policy, make_verify_rm, work: Path, *steps: int) -> CheckpointStore:
    """As a run does that keeps its two newest checkpoints."""
    checkpoints = CheckpointStore(store, identity={}, retention=StorageConfig(keep_last=2))
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
    resumed = CheckpointStore(store, identity={}, retention=StorageConfig(keep_last=2))
    assert resumed.newest(tmp_path / "fetched", last_step=100) is not None
    for checkpoints in (writing, resumed):
        steps = {step: found_step(checkpoints, tmp_path / "until", step=step) for step in (9, 19, 20, 29, 99)}
        assert steps == {9: None, 19: None, 20: 20, 29: 20, 99: 30}


def test_a_damaged_checkpoint_is_passed_over(
    store: ObjectStore, make_policy, make_verify_rm, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    writing = save(store, make_policy, make_verify_rm, tmp_path / "work", 10, 20)
    store.delete(["step-000020/metrics.jsonl"])
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
    store.write("step-000015/metrics.jsonl", b"", replaces=None)
    store.delete(["step-000020/metrics.jsonl"])
    with pytest.warns(CooperWarning) as said:
        found = checkpoints.newest(tmp_path / "fetched", last_step=100)
    assert found is not None
    assert found.name == "step-000010"
    assert len(said) == 1


def test_nothing_after_the_pointers_checkpoint_takes_its_place(
    store: ObjectStore, make_policy, make_verify_rm, tmp_path: Path
) -> None:
    """Whoever wrote step 20 lost against the writer of the pointer."""
    checkpoints = save(store, make_policy, make_verify_rm, tmp_path / "work", 10, 20)
    point_to(store, "step-000010")
    store.delete(["step-000010/metrics.jsonl"])
    with (
        pytest.warns(CooperWarning, match="step-000010 is passed over"),
        pytest.raises(DataError, match="which holds no checkpoint"),
    ):
        checkpoints.newest(tmp_path / "fetched", last_step=100)
