"""Checkpoints as other stages read them: by reference, without a pointer, and nothing uncertain."""

import json
from pathlib import Path

import pytest

from cooper_rl.checkpoints.logs import METRICS
from cooper_rl.checkpoints.manifest import dump_manifest
from cooper_rl.checkpoints.reading import read_manifest
from cooper_rl.checkpoints.reference import (
    CheckpointReference,
    check_reference_folder,
    newest_folder,
    open_checkpoint,
    write_reference,
)
from cooper_rl.checkpoints.state import (
    TrainingState,
)
from cooper_rl.config.infrastructure import StorageConfig
from cooper_rl.errors import (
    ConfigError,
    DamagedObjectError,
    DataError,
    StorageError,
)
from cooper_rl.records.files import write_report
from cooper_rl.records.step_metrics import read_metrics
from cooper_rl.storage.base import ObjectStore
from cooper_rl.storage.open import open_store
from tests.checkpoints.saving import checkpoints, newest, save


def test_of_a_finished_run_only_what_reports_read_is_fetched(
    state: TrainingState, store: ObjectStore, tmp_path: Path
) -> None:
    save(checkpoints(store), state, tmp_path / "work", 3)
    store.delete(["step-000003/policy/model.safetensors"])
    found = newest(store, tmp_path / "fetched", last_step=3)
    assert found is not None
    assert read_metrics(*found.log[METRICS]) == state.metrics
    assert not (found.folder / "policy" / "model.safetensors").exists()


def test_a_reference_is_small_and_leads_to_the_checkpoint(
    state: TrainingState, config: StorageConfig, store: ObjectStore, tmp_path: Path
) -> None:
    opened = checkpoints(store)
    save(opened, state, tmp_path / "artifact", 3)
    found = opened.published(tmp_path / "fetched")
    write_reference(tmp_path / "artifact", found, uri=opened.uri)
    files = sorted(
        path.relative_to(tmp_path / "artifact").as_posix()
        for path in (tmp_path / "artifact").rglob("*")
        if path.is_file()
    )
    assert files == ["LATEST", "reference.json", "step-000003/manifest.json", "step-000003/metrics.jsonl"]
    needed = ("policy/", "verify_rm/")
    with open_checkpoint(tmp_path / "artifact", config, starting_with=needed) as there:
        assert there.manifest.step == 3
        assert (there.folder / "policy" / "model.safetensors").is_file()
        assert (there.folder / "policy_optimizer.safetensors").exists() == (store.path_of("x") is not None)


def test_a_reference_to_another_place_or_another_manifest_is_refused(
    state: TrainingState, config: StorageConfig, store: ObjectStore, tmp_path: Path
) -> None:
    opened = checkpoints(store)
    save(opened, state, tmp_path / "work", 3)
    write_reference(tmp_path / "artifact", opened.published(tmp_path / "fetched"), uri=opened.uri)
    with (
        pytest.raises(
            StorageError, match=r"reference\.json: leads to .* not below storage\.uri; set storage"
        ),
        open_checkpoint(tmp_path / "artifact", StorageConfig()),
    ):
        pass
    reference = tmp_path / "artifact" / "reference.json"
    content = json.loads(reference.read_text())
    reference.write_text(json.dumps(content | {"checksum": "0" * 64}))
    with (
        pytest.raises(DamagedObjectError, match=r"manifest\.json: is not the one that .* was written for"),
        open_checkpoint(tmp_path / "artifact", config),
    ):
        pass


@pytest.mark.parametrize("uri", ["store", "./store", "../here/store", "a//store/", "."])
def test_a_reference_is_read_however_the_store_is_spelled(
    state: TrainingState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uri: str
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    config = StorageConfig(uri=uri, run_key="v1..v2")
    opened = checkpoints(open_store(config, f"{config.run_uri()}/from-000000"))
    save(opened, state, tmp_path / "work", 3)
    write_reference(tmp_path / "artifact", opened.published(tmp_path / "fetched"), uri=opened.uri)
    with open_checkpoint(tmp_path / "artifact", config) as there:
        assert there.manifest.step == 3


@pytest.mark.parametrize("uri", ["/elsewhere/run", "store/../run", "../run", "s3://store/run"])
@pytest.mark.parametrize("store", ["store", "."])
def test_a_reference_never_leads_out_of_the_store(tmp_path: Path, uri: str, store: str) -> None:
    reference = CheckpointReference(uri=uri, name="step-000003", step=3, checksum="0" * 64)
    write_report(tmp_path / "reference.json", reference)
    with (
        pytest.raises(StorageError, match=r"reference\.json: leads to .* not below storage\.uri"),
        open_checkpoint(tmp_path, StorageConfig(uri=store)),
    ):
        pass


@pytest.mark.parametrize("name", [b"", b"../x"])
def test_a_pointer_that_names_no_checkpoint_is_named(tmp_path: Path, name: bytes) -> None:
    (tmp_path / "LATEST").write_bytes(name)
    with (
        pytest.raises(DataError, match=r"its LATEST file names .*, which is no checkpoint; write the name"),
        open_checkpoint(tmp_path, StorageConfig()),
    ):
        pass


def test_a_reader_without_a_pointer_reads_the_newest_and_names_it(
    state: TrainingState, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = open_store(StorageConfig(), tmp_path / "run")
    opened = checkpoints(store)
    for step in (1, 2):
        save(opened, state, tmp_path / "work", step)
    store.delete(["LATEST"])
    with open_checkpoint(tmp_path / "run", StorageConfig()) as found:
        assert found.name == "step-000002"
    assert f"{tmp_path / 'run'}: LATEST is missing; reading step-000002" in caplog.messages


def test_a_reader_reads_what_builds_on_the_pointers_checkpoint_as_training_does(
    state: TrainingState, tmp_path: Path
) -> None:
    store = open_store(StorageConfig(), tmp_path / "run")
    opened = checkpoints(store)
    for step in (1, 2):
        save(opened, state, tmp_path / "work", step)
    (tmp_path / "run" / "LATEST").write_text("step-000001\n")
    with open_checkpoint(tmp_path / "run", StorageConfig()) as found:
        assert found.name == "step-000002"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"sha256": {"policy/config.json": "0" * 64}}, r"step-000002 and step-000002-0123abcd differ; write"),
        ({"identity": {"seed": "1"}, "defaults": {}}, r"step-000002 and step-000002-0123abcd are of two"),
    ],
)  # fmt: skip
def test_a_reader_without_a_pointer_refuses_what_is_uncertain(
    state: TrainingState, tmp_path: Path, change: dict[str, object], said: str
) -> None:
    """A second checkpoint of the same step: another state, or another run."""
    store = open_store(StorageConfig(), tmp_path / "run")
    opened = checkpoints(store)
    save(opened, state, tmp_path / "work", 2)
    other = read_manifest(store, "step-000002").model_copy(update=change).sealed()
    store.write("step-000002-0123abcd/manifest.json", dump_manifest(other), replaces=None)
    store.delete(["LATEST"])
    with (
        pytest.raises(ConfigError, match=f"LATEST is missing .* {said}"),
        open_checkpoint(tmp_path / "run", StorageConfig()),
    ):
        pass


def test_what_a_killed_writer_left_in_a_reference_folder_is_removed(tmp_path: Path) -> None:
    """Killed between the draft of `reference.json` and its rename."""
    folder = tmp_path / "run"
    folder.mkdir()
    tag = "0123abcd"
    (folder / f"reference.json.{tag}.partial").write_text("{")
    mark = "A draft of Cooper-RL, removed by its next start when its owner is gone, of reference.json\n"
    (folder / f".cooper-rl-{tag}.draft").write_text(mark)
    check_reference_folder(folder)
    assert list(folder.iterdir()) == []


def test_the_newest_folder_is_the_one_that_training_continues_from(
    state: TrainingState, tmp_path: Path
) -> None:
    """Killed between the manifest of a checkpoint and LATEST, and without LATEST."""
    run = tmp_path / "run"
    opened = checkpoints(open_store(StorageConfig(), run))
    for step in (2, 3):
        save(opened, state, run, step)
    assert newest_folder(run) == run / "step-000003"
    (run / "LATEST").write_text("step-000002\n")
    assert newest_folder(run) == run / "step-000003"
    (run / "LATEST").unlink()
    assert newest_folder(run) == run / "step-000003"
    assert newest_folder(run / "step-000002") == run / "step-000002"


def test_an_empty_folder_holds_no_checkpoint(tmp_path: Path) -> None:
    with (
        pytest.raises(DataError, match="holds no checkpoint"),
        open_checkpoint(tmp_path, StorageConfig()),
    ):
        pass


@pytest.mark.parametrize("other", ["models/model.safetensors", "step-000001/policy/model.safetensors"])
def test_a_folder_with_anything_else_is_not_cleared_for_a_reference(tmp_path: Path, other: str) -> None:
    """A run that was killed, or has ended, may leave what is its own."""
    folder = tmp_path / "run"
    check_reference_folder(folder)
    for own in (".staging-12345678/x", "step-000001/metrics.jsonl", "LATEST"):
        (folder / own).parent.mkdir(parents=True, exist_ok=True)
        (folder / own).touch()
    reference = CheckpointReference(uri="s3://b/r", name="step-000001", step=1, checksum="0")
    write_report(folder / "reference.json", reference)
    check_reference_folder(folder)
    (folder / other).parent.mkdir(parents=True)
    (folder / other).touch()
    with pytest.raises(
        ConfigError, match=rf"holds '{other.split('/')[0]}', which .*give a folder of its own"
    ):
        check_reference_folder(folder)
