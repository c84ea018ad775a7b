"""Checkpoints: complete or invisible, verified on read, in a folder and on an S3 server alike."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import GenerationConfig

from cooper_rl.checkpoints import state as checkpoint_module
from cooper_rl.checkpoints.logs import METRICS
from cooper_rl.checkpoints.manifest import CheckpointEntry, CheckpointManifest, retained
from cooper_rl.checkpoints.ownership import claim, mark, mark_staging
from cooper_rl.checkpoints.state import (
    TrainingState,
    read_state,
    save_tokenizers,
    take_snapshot,
    write_snapshot,
)
from cooper_rl.checkpoints.writer import CheckpointWriter
from cooper_rl.config.infrastructure import StorageConfig
from cooper_rl.errors import (
    ConfigError,
    CooperWarning,
    DataError,
    ModelError,
    StorageError,
    TrainingError,
    WriteConflictError,
)
from cooper_rl.records.step_metrics import read_metrics
from cooper_rl.storage.base import Content, ObjectStore
from cooper_rl.storage.open import open_store
from tests.checkpoints.saving import CPU, checkpoints, newest, overwrite, pieces, save


def test_what_is_saved_is_what_is_loaded(state: TrainingState, store: ObjectStore, tmp_path: Path) -> None:
    save(checkpoints(store), state, tmp_path / "work", 3)
    found = newest(store, tmp_path / "fetched")
    assert found is not None
    assert found.name == "step-000003"
    loaded = read_state(found.folder, step=found.manifest.step, device=CPU)
    assert loaded.step == 3
    assert (loaded.metrics, loaded.pairs) == ([], [])
    assert read_metrics(*found.log[METRICS]) == state.metrics
    assert torch.equal(loaded.policy_optimizer["a/exp_avg"], torch.arange(3.0))
    for kind in ("policy", "verify_rm"):
        saved, back = getattr(state, kind).model.state_dict(), getattr(loaded, kind).model.state_dict()
        assert list(saved) == list(back)
        assert all(torch.equal(saved[name], back[name]) for name in saved)
    assert not list((tmp_path / "work").glob(".staging*"))


def test_a_checkpoints_weights_can_be_read_by_whoever_reads_its_metrics(
    state: TrainingState, tmp_path: Path
) -> None:
    save_tokenizers(state, tmp_path)
    write_snapshot(take_snapshot(state), tmp_path)
    modes = {path.stat().st_mode for path in tmp_path.rglob("*") if path.is_file()}
    assert len(modes) == 1


def test_a_snapshot_does_not_follow_the_model_and_keeps_tied_weights_tied(state: TrainingState) -> None:
    state.policy.model.tie_weights()
    snapshot = take_snapshot(state)
    before = {name: tensor.clone() for name, tensor in snapshot.weights["policy"].items()}
    with torch.no_grad():
        for weight in state.policy.model.parameters():
            weight.add_(1)
    assert all(torch.equal(before[name], snapshot.weights["policy"][name]) for name in before)
    live = state.policy.model.state_dict()
    pointers = {tensor.data_ptr() for tensor in live.values()}
    assert len({tensor.data_ptr() for tensor in snapshot.weights["policy"].values()}) == len(pointers)


def test_of_a_model_that_computes_in_bf16_the_fp32_weights_are_written_and_its_file_says_so(
    state: TrainingState, tmp_path: Path
) -> None:
    exact = {name: tensor.clone() for name, tensor in state.policy.model.state_dict().items()}
    state.policy.model.to(torch.bfloat16)
    state.weights = {"policy": exact}
    save_tokenizers(state, tmp_path)
    write_snapshot(take_snapshot(state), tmp_path)
    written = load_file(tmp_path / "policy" / "model.safetensors")
    assert all(torch.equal(tensor, exact[name]) for name, tensor in written.items())
    assert json.loads((tmp_path / "policy" / "config.json").read_text())["dtype"] == "float32"


def test_saving_shows_nothing_before_the_end_and_the_caller_does_not_wait(
    state: TrainingState, store: ObjectStore, tmp_path: Path, monkeypatch
) -> None:
    """The second write is held until the caller, who has long gone on, lets it go."""
    import threading

    opened, gate = checkpoints(store), threading.Event()
    publish = opened.publish

    def held(*arguments, **options) -> None:
        assert gate.wait(20)
        publish(*arguments, **options)

    monkeypatch.setattr(opened, "publish", held)
    with CheckpointWriter(opened, tmp_path / "work") as writer:
        assert writer.save(state, score=None) < 10
        writer.check()
        assert newest(store, tmp_path / "fetched") is None
        gate.set()
    assert newest(store, tmp_path / "fetched") is not None


@pytest.mark.parametrize(
    ("kept", "left"),
    [
        ({}, [5, 6]),
        ({"keep_last": 1}, [6]),
        ({"keep_last": 1, "keep_every": 2}, [2, 4, 6]),
        ({"keep_last": 1, "keep_best": True}, [3, 6]),
    ],
)
def test_what_is_kept(kept: dict[str, object], left: list[int]) -> None:
    """Steps 1 to 6, of which 3 scored best."""
    entries = tuple(CheckpointEntry(name=f"step-{s:06d}", step=s, score=-abs(3.0 - s)) for s in range(1, 7))
    config = StorageConfig.model_validate(kept)
    assert [entry.step for entry in retained(entries, config)] == left
    rolling: tuple[CheckpointEntry, ...] = ()
    for entry in entries:
        rolling = retained((*rolling, entry), config)
    assert [entry.step for entry in rolling] == left


def test_the_newest_up_to_a_step_is_kept_as_long_as_it_is_asked_for(
    state: TrainingState, store: ObjectStore, tmp_path: Path
) -> None:
    """What a rollback would need; also after a restart, which does not know of it yet."""
    opened = checkpoints(store, keep_last=1)
    with CheckpointWriter(opened, tmp_path / "work") as writer:
        for step, back_to in ((2, []), (4, [2]), (6, [5]), (8, [5])):
            state.step = step
            writer.save(state, score=0, back_to=back_to)
    again = checkpoints(store, keep_last=1)
    assert again.newest(tmp_path / "fetched", last_step=1000) is not None
    for found in (opened, again):
        kept = found.newest_until(tmp_path / "earlier", step=7)
        assert kept is not None
        assert kept.manifest.step == 4
        assert found.newest_until(tmp_path / "earlier", step=3) is None


def test_a_step_that_was_published_twice_is_kept_once() -> None:
    names = [("step-000002", 2), ("step-000004", 4), ("step-000004-0123abcd", 4)]
    entries = tuple(CheckpointEntry(name=name, step=step, score=None) for name, step in names)
    assert [entry.name for entry in retained(entries, StorageConfig())] == [
        "step-000002",
        "step-000004-0123abcd",
    ]


def test_old_checkpoints_and_leftovers_of_killed_writers_are_removed(
    state: TrainingState, store: ObjectStore, tmp_path: Path
) -> None:
    place = mark(store)
    data = b"the manifest was never written"
    claim(store, "step-000009", {"policy/model.safetensors": hashlib.sha256(data).hexdigest()}, place=place)
    store.write("step-000009/policy/model.safetensors", data, replaces=None)
    assert claim(store, "step-000002", {}, place=place) == "step-000002"
    mark_staging(tmp_path / "work" / ".staging-0123", place)
    save(checkpoints(store), state, tmp_path / "work", 1, 2, 3)
    names = sorted({key.split("/")[0] for key in store.keys("step-")})
    assert names == ["step-000002", "step-000003"]
    assert not list((tmp_path / "work").glob(".staging*"))


def test_of_two_writers_one_stops_and_the_others_checkpoint_stands(
    state: TrainingState, store: ObjectStore, tmp_path: Path
) -> None:
    one, other = checkpoints(store), checkpoints(store)
    for opened in (one, other):
        assert opened.newest(tmp_path, last_step=1000) is None
    save(one, state, tmp_path / "one", 3)
    with pytest.raises(WriteConflictError, match=r"LATEST: somebody else wrote it; two runs use this"):
        save(other, state, tmp_path / "other", 3)
    found = newest(store, tmp_path / "fetched")
    assert found is not None
    assert found.name == "step-000003"
    save(one, state, tmp_path / "one", 6)


def test_a_pointer_that_a_killed_process_was_writing_may_show_late(
    state: TrainingState, store: ObjectStore, tmp_path: Path
) -> None:
    """MinIO may keep such a write on half of its drives: the next process reads LATEST as it was before."""
    save(checkpoints(store), state, tmp_path / "killed", 3, 6)
    written = store.read("LATEST")
    assert written is not None
    tag = store.write("LATEST", b"step-000003\n", replaces=written.tag)
    opened = checkpoints(store)
    found = opened.newest(tmp_path / "fetched", last_step=1000)
    assert found is not None
    assert found.name == "step-000006"
    store.write("LATEST", written.data, replaces=tag)
    save(opened, state, tmp_path / "work", 9, 12)
    found = newest(store, tmp_path / "again")
    assert found is not None
    assert found.name == "step-000012"


def test_a_run_that_starts_beside_another_is_told_so_when_its_checkpoint_is_removed(
    state: TrainingState, store: ObjectStore, tmp_path: Path, monkeypatch
) -> None:
    """The other publishes two more steps while the first one's manifest is asked for."""
    running = checkpoints(store, keep_last=1)
    save(running, state, tmp_path / "work", 3)
    read = store.read

    def read_late(key: str) -> Content | None:
        if key.startswith("step-000003"):
            monkeypatch.setattr(store, "read", read)
            save(running, state, tmp_path / "work", 6, 9)
        return read(key)

    with monkeypatch.context() as patched:
        patched.setattr(store, "read", read_late)
        with (
            pytest.warns(CooperWarning, match="step-000003 is passed over"),
            pytest.raises(WriteConflictError, match=r"LATEST: somebody else writes it; two runs use this"),
        ):
            newest(store, tmp_path / "fetched")
    found = newest(store, tmp_path / "fetched")
    assert found is not None
    assert found.name == "step-000009"


def test_of_two_runs_in_one_folder_the_slower_one_says_so(
    state: TrainingState, tmp_path: Path, monkeypatch
) -> None:
    """The other publishes, and clears away what it takes for a killed run's, while this one stores files."""
    store = open_store(StorageConfig(), tmp_path)
    opened, put_file = checkpoints(store), store.put_file

    def put_late(key: str, path: Path, *, sha256: str, may_link: bool) -> None:
        monkeypatch.undo()
        save(checkpoints(store), state, tmp_path, 6)
        put_file(key, path, sha256=sha256, may_link=may_link)

    monkeypatch.setattr(store, "put_file", put_late)
    with pytest.raises(
        WriteConflictError, match=r"\.staging-\w+: somebody else removed it; two runs use this"
    ):
        save(opened, state, tmp_path, 3)
    found = newest(store, tmp_path / "fetched")
    assert found is not None
    assert found.manifest.step == 6
    assert not list(tmp_path.glob(".staging*"))


def test_of_two_runs_in_one_folder_the_one_whose_folder_is_made_again_says_so(
    state: TrainingState, make_policy, tmp_path: Path, monkeypatch
) -> None:
    """The other publishes and clears away between two files of the policy, each of which makes its folder."""
    write = GenerationConfig.save_pretrained

    def write_late(settings: GenerationConfig, folder: Path, **options: object) -> None:
        monkeypatch.undo()
        other = replace(state, policy=make_policy(0))
        save(checkpoints(open_store(StorageConfig(), tmp_path)), other, tmp_path, 6)
        write(settings, folder, **options)

    monkeypatch.setattr(GenerationConfig, "save_pretrained", write_late)
    with pytest.raises(
        WriteConflictError, match=r"\.staging-\w+: somebody else removed it; two runs use this"
    ):
        save(checkpoints(open_store(StorageConfig(), tmp_path)), state, tmp_path, 3)


def test_a_run_that_goes_on_from_what_was_published_keeps_its_files(
    state: TrainingState, tmp_path: Path, monkeypatch
) -> None:
    """It starts while the run that published, which was told to end, still clears away."""
    store = open_store(StorageConfig(), tmp_path)
    place = mark(store)
    mark_staging(tmp_path / ".staging-killed", place)
    monkeypatch.setattr(
        store, "remove_unfinished", lambda _: mark_staging(tmp_path / ".staging-later", place)
    )
    save(checkpoints(store), state, tmp_path, 3)
    assert [path.name for path in tmp_path.glob(".staging*")] == [".staging-later"]


def test_an_error_of_the_thread_reaches_the_caller_and_the_previous_checkpoint_stays(
    state: TrainingState, store: ObjectStore, tmp_path: Path, monkeypatch
) -> None:
    """The disk fills up while the second checkpoint is written."""
    opened = checkpoints(store)
    save(opened, state, tmp_path / "work", 3)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(checkpoint_module, "save_file", full)
        with pytest.raises(DataError, match=r"the checkpoint cannot be written .*No space left"):
            save(opened, state, tmp_path / "work", 6)
    found = newest(store, tmp_path / "fetched")
    assert found is not None
    assert found.manifest.step == 3


def test_what_ended_training_is_raised_and_not_what_became_of_its_last_checkpoint(
    state: TrainingState, tmp_path: Path, monkeypatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    def train() -> None:
        with CheckpointWriter(checkpoints(store), tmp_path / "work") as writer:
            writer.save(state, score=0)
            raise TrainingError("the loss is NaN")

    monkeypatch.setattr(checkpoint_module, "save_file", full)
    store = open_store(StorageConfig(), tmp_path / "store")
    with pytest.raises(TrainingError, match="the loss is NaN"):
        train()
    assert "the last checkpoint was not written" in caplog.text
    assert "No space left" in caplog.text


@pytest.mark.parametrize("file", ["policy/model.safetensors", "metrics.jsonl", "manifest.json"])
@pytest.mark.parametrize("kind", ["changed", "missing"])
def test_a_damaged_checkpoint_is_named_and_the_one_before_is_used(
    state: TrainingState, store: ObjectStore, tmp_path: Path, file: str, kind: str
) -> None:
    save(checkpoints(store), state, tmp_path / "work", 3, 6)
    key = f"step-000006/{file}" if file != METRICS else f"{pieces(store)[-1]}/{METRICS}"
    content = store.read(key)
    assert content is not None
    store.delete([key])
    if kind == "changed":
        damaged = content.data.replace(b'"step": 6', b'"step": 7') + b" "
        store.write(key, damaged, replaces=None)
    with pytest.warns(CooperWarning, match=rf"step-000006 is passed over.*{key}: {kind} since"):
        found = newest(store, tmp_path / "fetched")
    assert found is not None
    assert found.manifest.step == 3
    assert read_metrics(*found.log[METRICS]) == state.metrics


def test_where_the_only_checkpoint_is_damaged_the_error_names_the_file(
    state: TrainingState, store: ObjectStore, tmp_path: Path
) -> None:
    save(checkpoints(store), state, tmp_path / "work", 3)
    key = f"{pieces(store)[-1]}/{METRICS}"
    store.delete([key])
    with (
        pytest.warns(CooperWarning, match="step-000003 is passed over"),
        pytest.raises(
            DataError, match=rf"'step-000003', which is damaged \(.*{key}: missing.*\); restore the"
        ),
    ):
        newest(store, tmp_path / "fetched")


def test_after_a_fallback_the_run_goes_on_and_replaces_what_was_damaged(
    state: TrainingState, store: ObjectStore, tmp_path: Path
) -> None:
    save(checkpoints(store), state, tmp_path / "work", 3, 6)
    store.delete(["step-000006/run_state.json"])
    opened = checkpoints(store)
    with pytest.warns(CooperWarning, match="passed over"):
        opened.newest(tmp_path / "fetched", last_step=1000)
    save(opened, state, tmp_path / "work", 6)
    found = newest(store, tmp_path / "fetched")
    assert found is not None
    assert found.manifest.step == 6
    assert found.name != "step-000006"
    assert {key.split("/")[0] for key in store.keys("step-")} == {"step-000003", found.name}


@pytest.mark.parametrize("name", ["step-000009", "../elsewhere", "", "/etc"])
def test_a_pointer_to_nowhere_or_outside_is_refused(store: ObjectStore, tmp_path: Path, name: str) -> None:
    store.write("LATEST", f"{name}\n".encode(), replaces=None)

    def look() -> None:
        newest(store, tmp_path / "fetched")

    if name == "step-000009":
        with (
            pytest.warns(CooperWarning, match="step-000009 is passed over"),
            pytest.raises(DataError, match="which holds no checkpoint; restore the folder"),
        ):
            look()
    else:
        with pytest.raises(DataError, match="which holds no checkpoint; restore the folder"):
            look()


def test_a_manifest_that_names_files_outside_its_folder_is_refused(
    state: TrainingState, store: ObjectStore, tmp_path: Path
) -> None:
    """The checksum is made to agree, as whoever forges a manifest would."""
    save(checkpoints(store), state, tmp_path / "work", 3)
    content = store.read("step-000003/manifest.json")
    assert content is not None
    manifest = CheckpointManifest.model_validate_json(content.data)
    forged = manifest.model_copy(update={"sha256": {"../../escaped": "0" * 64}}).sealed()
    overwrite(store, "step-000003/manifest.json", forged.model_dump_json().encode())
    with pytest.raises(StorageError, match=r"object name '\.\./\.\./escaped' is refused"):
        newest(store, tmp_path / "fetched")


def test_another_configuration_or_other_data_is_refused_with_the_keys(
    state: TrainingState, store: ObjectStore, tmp_path: Path
) -> None:
    save(checkpoints(store), state, tmp_path / "work", 3)
    other = {"seed": "0", "cooper.group_size": "4", "data.start": "f"}
    with pytest.raises(
        ConfigError,
        match=r"another configuration or other data \(cooper.group_size: 8 there, 4 here; "
        r"data.problems: abc there, absent here; data.start: absent there, f here\); choose another",
    ):
        checkpoints(store, identity=other).newest(tmp_path / "fetched", last_step=1000)


def test_a_store_that_can_be_written_passes_and_stays_clean(store: ObjectStore) -> None:
    checkpoints(store).prepare()
    assert store.keys("") == [".cooper-rl"]


def test_a_store_that_ignores_conditions_is_refused(store: ObjectStore, monkeypatch) -> None:
    """As some S3 servers do: every conditional write succeeds. Nothing stays there."""
    write = store.write

    def write_over(key: str, data: bytes, *, replaces: str | None) -> str:
        store.delete([key])
        return write(key, data, replaces=None)

    monkeypatch.setattr(store, "write", write_over)
    with pytest.raises(StorageError, match=r"ignores If-None-Match.*only in a bucket that keeps no versions"):
        checkpoints(store).prepare()
    assert store.keys("") == []


def test_optimiser_state_that_is_not_safetensors_is_refused(state: TrainingState, tmp_path: Path) -> None:
    """Nothing is ever unpickled."""
    store = open_store(StorageConfig(), tmp_path / "store")
    save(checkpoints(store), state, tmp_path / "work", 3)
    folder = tmp_path / "store" / "step-000003"
    (folder / "policy_optimizer.safetensors").unlink()
    (folder / "policy_optimizer.safetensors").write_bytes(b"pickle")
    with pytest.raises(ModelError, match="optimiser state is not safetensors"):
        read_state(folder, step=3, device=CPU)


def test_a_checkpoint_that_another_run_removes_meanwhile_is_told(
    state: TrainingState, tmp_path: Path
) -> None:
    store = open_store(StorageConfig(), tmp_path / "store")
    save(checkpoints(store), state, tmp_path / "work", 3)
    folder = tmp_path / "store" / "step-000003"
    (folder / "pending.jsonl").unlink()
    with pytest.raises(DataError, match=r"pending\.jsonl: gone .*two runs use this place"):
        read_state(folder, step=3, device=CPU)
