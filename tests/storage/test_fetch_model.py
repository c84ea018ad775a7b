"""A model reaches a server's folder verified, from a folder and from an S3 server, or not at all."""

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from cooper_rl.config.infrastructure import StorageConfig
from cooper_rl.errors import ConfigError, DamagedObjectError, StorageError
from cooper_rl.storage.local import LocalStore
from cooper_rl.storage.models import at_hand, find_model, main, read_sums
from tests.stand_ins.fixtures import send_folder

FILES = {
    "config.json": b"{}",
    "model.safetensors": b"weights" * 1000,
    "tokenizer/merges.txt": b"a b",
    "train.jsonl": b"{}\n",
}


def sums_of(files: dict[str, bytes]) -> bytes:
    lines = [f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in files.items()]
    return "".join(lines).encode()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model in a folder that stands for the store."""
    folder = tmp_path / "store"
    for name, data in (FILES | {"SHA256SUMS": sums_of(FILES)}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def read_all(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_model_arrives_whole(model: Path, tmp_path: Path) -> None:
    find_model(StorageConfig(), str(model)).fetch(tmp_path / "here")
    assert read_all(tmp_path / "here") == FILES


def test_a_model_arrives_from_an_s3_server(bucket: str, s3_server, model: Path, tmp_path: Path) -> None:
    """Through the command that the manifests start, with credentials from a mounted secret."""
    send_folder(s3_server, bucket, "Qwen/Qwen3-4B", model)
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "access_key").write_text(s3_server.account.access_key)
    (secret / "secret_key").write_text(s3_server.account.secret_key)
    arguments = [
        f"--uri=s3://{bucket}/Qwen/Qwen3-4B",
        f"--endpoint={s3_server.endpoint}",
        f"--credentials={secret}",
        f"--folder={tmp_path / 'here'}",
    ]
    assert main(arguments) == 0
    assert read_all(tmp_path / "here") == FILES


def test_a_stored_model_is_fetched_once_for_all_who_ask(
    bucket: str, s3_server, model: Path, tmp_path: Path, monkeypatch, caplog
) -> None:
    send_folder(s3_server, bucket, "small", model)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    config = StorageConfig(endpoint=s3_server.endpoint)
    with caplog.at_level("INFO"), ThreadPoolExecutor(4) as askers:
        folders = set(askers.map(partial(at_hand, config), [f"s3://{bucket}/small"] * 4))
    assert [read_all(Path(folder)) for folder in folders] == [FILES]
    assert [record.getMessage() for record in caplog.records] == [f"fetched {name}" for name in FILES]


def test_a_stored_model_is_on_the_disk_before_its_folder_gets_the_name_that_is_trusted(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Power lost after a rename can leave names without content, and nobody verifies the folder later."""
    flushed: set[str] = set()
    fsync = os.fsync

    def note(handle: int) -> None:
        flushed.add(str(Path(f"/proc/self/fd/{handle}").readlink()))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", note)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("cooper_rl.storage.models.open_store", lambda *_: LocalStore(model))
    folder = Path(at_hand(StorageConfig(endpoint="http://127.0.0.1:9"), "s3://bucket/small"))
    assert read_all(folder) == FILES
    draft = folder.with_name(f"{folder.name}.partial")
    assert flushed == {str(draft / name) for name in (*FILES, "tokenizer", "")}


def test_a_full_disk_is_named_and_nothing_takes_the_models_place(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", refuse)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("cooper_rl.storage.models.open_store", lambda *_: LocalStore(model))
    with pytest.raises(
        StorageError, match=r"cannot be written .*No space left on device.*; free space there"
    ):
        at_hand(StorageConfig(endpoint="http://127.0.0.1:9"), "s3://bucket/small")
    assert list((tmp_path / "cache/cooper-rl/models").iterdir()) == []


def test_a_folder_and_a_hub_id_are_at_hand_as_they_are() -> None:
    assert at_hand(StorageConfig(), "/models/small") == "/models/small"
    assert at_hand(StorageConfig(), "Qwen/Qwen2.5-1.5B") == "Qwen/Qwen2.5-1.5B"


def test_a_user_without_a_home_is_told_where_models_would_go(monkeypatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr("os.path.expanduser", str)  # finds no home, as for a user that no file knows
    with pytest.raises(ConfigError, match="no home folder to keep models in: set HOME or XDG_CACHE_HOME"):
        at_hand(StorageConfig(), "s3://models/small")


def test_a_model_that_cannot_be_fetched_leaves_none_behind(
    bucket: str, s3_server, model: Path, tmp_path: Path, monkeypatch
) -> None:
    (model / "model.safetensors").write_bytes(b"poison")
    send_folder(s3_server, bucket, "small", model)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    config = StorageConfig(endpoint=s3_server.endpoint)
    for _ in range(2):
        with pytest.raises(
            DamagedObjectError, match=r"model\.safetensors: missing, or not what SHA256SUMS says; upload"
        ):
            at_hand(config, f"s3://{bucket}/small")
        assert not read_all(tmp_path / "cache"), "what did arrive takes the room that is missing"


def test_a_folder_with_weights_of_another_model_is_refused(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a pod whose containers start again after another model came to the address."""
    here = tmp_path / "here"
    here.mkdir()
    (here / "model.safetensors.index.json").write_text("{}")
    arguments = [f"--uri={model}", f"--folder={here}"]
    assert main(arguments) == 2
    assert (
        "model.safetensors.index.json: is no file of this model; empty the folder" in capsys.readouterr().err
    )
    (here / "model.safetensors.index.json").unlink()
    assert main(arguments) == 0
    assert main(arguments) == 0
    assert read_all(here) == FILES


def test_a_changed_file_is_not_served(model: Path, tmp_path: Path) -> None:
    (model / "model.safetensors").write_bytes(b"poison")
    with pytest.raises(
        DamagedObjectError, match=r"model\.safetensors: missing, or not what SHA256SUMS says; upload"
    ):
        find_model(StorageConfig(), str(model)).fetch(tmp_path / "here")
    assert not (tmp_path / "here" / "model.safetensors").exists()


def test_a_model_without_its_list_is_refused(model: Path, tmp_path: Path) -> None:
    (model / "SHA256SUMS").unlink()
    with pytest.raises(StorageError, match="SHA256SUMS: missing; write it beside the model"):
        find_model(StorageConfig(), str(model)).fetch(tmp_path / "here")


@pytest.mark.parametrize(
    "name", ["pytorch_model.bin", "modeling_evil.py", "weights.pt", "weights.pkl", "a.so"]
)
def test_a_file_that_may_run_code_is_refused(name: str) -> None:
    with pytest.raises(StorageError, match=rf"there, line 2: '{name}' may run code when it is loaded"):
        read_sums(sums_of({"config.json": b"{}", name: b"x"}), place="there")


@pytest.mark.parametrize("name", ["../config.json", "/etc/passwd", "a/../../b.json"])
def test_a_file_outside_the_folder_is_refused(name: str) -> None:
    with pytest.raises(StorageError, match="is refused: it must be a relative path"):
        read_sums(sums_of({name: b"x"}), place="there")


def test_a_list_that_is_none_is_refused_with_its_line() -> None:
    with pytest.raises(StorageError, match=r"there, line 1: 'hello' is not a hash and a name"):
        read_sums(b"hello\n", place="there")


@pytest.mark.parametrize("prefix", ["", "./"])
def test_names_are_read_as_a_second_call_of_sha256sum_writes_them(prefix: str) -> None:
    """`sha256sum *` or `./*` finds the list itself, emptied by the shell."""
    found = read_sums(
        sums_of({prefix + name: data for name, data in (FILES | {"SHA256SUMS": b""}).items()}), place="there"
    )
    assert set(found) == set(FILES)


def test_a_list_without_a_configuration_is_refused() -> None:
    with pytest.raises(StorageError, match=r"there: names no config\.json, so this is no model"):
        read_sums(sums_of({"model.safetensors": b"x"}), place="there")


def test_a_list_without_weights_is_refused() -> None:
    with pytest.raises(StorageError, match=r"there: names no weights; make the list in a folder with"):
        read_sums(sums_of({"config.json": b"{}"}), place="there")


def test_the_command_ends_with_one_line_of_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([f"--uri={tmp_path / 'none'}", f"--folder={tmp_path / 'here'}"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("fetch_model: ")
    assert error.count("\n") == 1
